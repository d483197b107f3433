"""The names of an index's files, and of its folder while it is not there yet."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from contextlib import suppress

FILES, ROWS, FRAMES, META = "file_location.txt", "sample_locations.bin", "frames.bin", "meta.json"
_HIDDEN = re.compile(r"\..+\.(?P<host>[0-9a-f]{8})-[0-9a-f]{16}\.penstock-(?P<state>tmp|old)")


def hidden_name(name: str, state: str) -> str:
    """Return a name for a folder on its way (`tmp`), or for the one that it replaces (`old`)."""
    return f".{name}.{_host()}-{secrets.token_hex(8)}.penstock-{state}"


def is_ours(found: str, name: str) -> bool:
    """Whether a name was made by `hidden_name` for this one, on this machine."""
    match = _match(found, name)
    return match is not None and match["host"] == _host()


def being_replaced(folder: str) -> bool:
    """Whether an old index was just put aside, so that a new one is about to appear."""
    parent, name = os.path.split(folder)
    with suppress(OSError):
        matches = (_match(found, name) for found in os.listdir(parent))
        return any(match is not None and match["state"] == "old" for match in matches)
    return False


def _match(found: str, name: str) -> re.Match[str] | None:
    return _HIDDEN.fullmatch(found) if found.startswith(f".{name}.") else None


def _host() -> str:
    return hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()
