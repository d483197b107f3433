"""The one place that reads and sets environment variables."""

from __future__ import annotations

import os
import re
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_S3_ENDPOINTS = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_SECRET = re.compile(r"(AWS|AZURE|GOOGLE)_\w*(KEY|KEY_ID|SECRET|TOKEN)")
_SHORTEST_SECRET = 6


def cache_directory() -> Path:
    """Return `PENSTOCK_CACHE`, else the user's cache directory for Penstock (not created)."""
    if chosen := os.environ.get("PENSTOCK_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path("~/Library/Caches/penstock").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "penstock"


def cache_limit_text() -> str:
    """Return `PENSTOCK_CACHE_LIMIT`, how much the cache may hold; empty where it is not set."""
    return os.environ.get("PENSTOCK_CACHE_LIMIT", "").strip()


def new_remote_path(name: str) -> str:
    """Return a fresh place for `name`: below `PENSTOCK_REMOTE`, else below the cache."""
    if ".." in name.split("/") or name.startswith("/"):
        raise OptionError(f"{name!r}: the name of a new file stays below the default remote root.")
    root = os.environ.get("PENSTOCK_REMOTE") or str(cache_directory() / "remote")
    return f"{root.rstrip('/')}/{secrets.token_hex(8)}/{name}"


def keep_tokenizers_to_one_thread() -> None:
    """Set `TOKENIZERS_PARALLELISM`, which the library asks at every call, for this process."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def environment() -> dict[str, str]:
    """Return all variables, for a process that does not get them from this one by itself."""
    return dict(os.environ)


def set_environment(variables: Mapping[str, str]) -> None:
    """Have these variables alone."""
    os.environ.clear()
    os.environ.update(variables)


def rank() -> int:
    """Return `RANK`, this process's number in a distributed run; 0 where it says none.

    Fit for whether to show progress; who shares out data asks for `world_size` first.
    """
    given = os.environ.get("RANK", "")
    return int(given) if given.isdecimal() else 0


def local_world_size() -> int:
    """Return `LOCAL_WORLD_SIZE`, the processes of a distributed run on this host, by torchrun."""
    given = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(given)) if given.isdecimal() else 1


def world_size() -> int | None:
    """Return `WORLD_SIZE`, the processes of a distributed run; None where there is no such run.

    Each of them needs its own `RANK`: without it all would be rank 0 and get the same data.
    """
    given, own = os.environ.get("WORLD_SIZE", ""), os.environ.get("RANK", "")
    if not given:
        return None
    if not given.isdecimal() or not int(given):
        raise OptionError(
            f"WORLD_SIZE={given!r} in the environment: expected the number of processes, 1 or "
            "more. Correct or unset it, or give rank and world_size."
        )
    count = int(given)
    if not own.isdecimal() and (own or count > 1):
        what = f"RANK={own!r} is no number" if own else "RANK is not set"
        raise OptionError(
            f"WORLD_SIZE={count} in the environment, but {what}: every process would get the same "
            f"data. Set RANK from 0 to {count - 1}, one for each, or give rank and world_size."
        )
    return count


def endpoint_is_plain_http() -> bool:
    """Whether the standard variables name an S3 endpoint without TLS."""
    return any(os.environ.get(name, "").startswith("http://") for name in _S3_ENDPOINTS)


def proxy_of(scheme: str, host: str) -> str:
    """Return the proxy that the standard variables name for a host; "" where there is none."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 (only for HTTP)

    return "" if proxy_bypass(host) else getproxies().get(scheme, "")


def store_in_environment() -> str:
    """Return what the standard variables say of which store is meant; for hashing, not showing."""
    others = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL")
    return repr([os.environ.get(name, "") for name in (*_S3_ENDPOINTS, *others)])


def secrets_in_environment() -> list[str]:
    """Return the credentials that the standard variables hold, so that no text shows them."""
    found = (value for name, value in os.environ.items() if _SECRET.fullmatch(name))
    # Nothing that short is a secret, and masking it would garble texts ("test", "x").
    return [value for value in found if len(value) >= _SHORTEST_SECRET]
