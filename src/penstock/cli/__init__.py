"""The `penstock` command."""

from penstock.cli._main import main

__all__ = ["main"]
