"""pandas stays out of a process until somebody uses it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from penstock.decode import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
assert pa.array([1, None], pa.int64()).to_pylist() == [1, None]
assert "pandas" not in sys.modules
import pandas
assert len(pa.table({"a": [1, 2]}).to_pandas()) == 2
assert pa.array(pandas.Series([1, 2])).to_pylist() == [1, 2]
keep_pandas_out()
print("fine")
"""


def test_arrays_are_made_without_pandas_and_it_works_when_it_is_wanted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "fine\n"
