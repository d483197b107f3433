"""Environments of peers: each in a folder of its own, made once."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[1] / ".venv-peers"
_SHARED = ("orjson", "pyarrow", "zstandard")
"""What peers use as well: in our versions, so that only what is built on them differs."""


def python_with(name: str, *requirements: str, alone: str = "") -> Path:
    """Return the Python of an environment that has what is required, made where it is missing.

    `alone` is installed without what it requires, in any Python.
    """
    home = ENVIRONMENTS / name
    python = home / "bin" / "python"
    wanted = [*requirements, *(f"{x}=={importlib.metadata.version(x)}" for x in _SHARED)]
    note = home / "requirements.txt"
    text = "\n".join([sys.version, *wanted, *alone.split()])
    if not note.exists() or note.read_text(encoding="utf-8") != text:
        print(f"installing {' '.join(requirements)} into {home}", file=sys.stderr)
        venv.create(home, clear=True, symlinks=True)
        # This interpreter's pip fills it, so that it needs none of its own.
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq"]
        subprocess.run([*pip, "--disable-pip-version-check", *wanted], check=True)
        if alone:
            subprocess.run([*pip, "--no-deps", "--ignore-requires-python", alone], check=True)
        note.write_text(text, encoding="utf-8")
    return python


def python_if_possible(name: str, *requirements: str, alone: str = "") -> Path | None:
    """Return the same, or None where it cannot be installed; says so on stderr."""
    try:
        return python_with(name, *requirements, alone=alone)
    except subprocess.CalledProcessError as why:
        print(f"{' '.join([*requirements, alone])} does not install here: {why}", file=sys.stderr)
        return None


def version_in(python: Path, package: str) -> str:
    """Return the version of a package in another environment."""
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.check_output([python, "-c", program], text=True).strip()
