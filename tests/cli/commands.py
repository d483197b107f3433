"""Run the command: in this process where that tells all, else as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result

from penstock.cli._app import app

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60


def invoke(*arguments: object) -> Result:
    """Run the command in this process; stdout and stderr are apart."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="penstock")


def succeed(*arguments: object) -> str:
    """Return what the command prints when nothing is wrong."""
    done = invoke(*arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def document(*arguments: object, code: int = 0) -> Any:
    """Return the JSON document that the command prints."""
    done = invoke(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def command(*arguments: object) -> list[str]:
    """Return the command line for a process."""
    return [sys.executable, "-m", "penstock", *map(str, arguments)]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


def options(storage_options: dict[str, str]) -> list[str]:
    """Return storage options as the command takes them."""
    return [text for key, value in storage_options.items() for text in ("-o", f"{key}={value}")]


def written(path: Path, *lines: str | bytes) -> Path:
    """Write a text file of these lines and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = (line.encode() if isinstance(line, str) else line for line in lines)
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return path


def visible(directory: Path) -> list[str]:
    """Return the names in a directory that are not hidden."""
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def hidden(directory: Path) -> list[str]:
    """Return the hidden names in a directory."""
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("."))
