"""Run by the interpreter at its start, in processes that `halting` gave their environment."""

from tests.faults.halting import install

install()
