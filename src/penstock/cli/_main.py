"""The start of the command: signals, streams, and the exit code."""

from __future__ import annotations

import io
import sys

from penstock.cli._signals import INTERRUPTED, Terminated, obey_signals


def main() -> None:
    """Run the `penstock` command with the arguments of this process, and exit."""
    try:
        obey_signals()
        sys.exit(_run())
    except KeyboardInterrupt as failure:
        # Before or after a verb; a verb handles its own interruption.
        sys.exit(failure.code if isinstance(failure, Terminated) else INTERRUPTED)


def _run() -> int:
    # Loaded here, so that Ctrl-C works while modules are loaded.
    import click  # noqa: PLC0415

    from penstock.cli._app import app  # noqa: PLC0415

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Every record is printable in any locale.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app.main(prog_name="penstock", standalone_mode=False)
    except click.ClickException as failure:
        failure.show()
        return failure.exit_code
    except click.Abort as failure:
        raise failure.__cause__ or KeyboardInterrupt from None
    return code if isinstance(code, int) else 0
