"""Run by the interpreter at its start, in processes that `interrupting` gave their environment."""

from tests.faults.interrupting import install

install()
