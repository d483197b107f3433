"""Every type of Arrow is read as pyarrow reads it, or refused by its name."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("program", ["values", "types"])
def test_a_type_is_read_as_pyarrow_reads_it_or_refused_and_ends_no_process(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "tests.tables.type_programs", program]
    done = subprocess.run(
        [*command, str(tmp_path / "a.arrow")], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    assert [line for line in lines if line.startswith(("WRONG", "READ", "UNNAMED"))] == []
    assert len(lines) > 70
