"""Keeping pandas out of processes that do not need it."""

from __future__ import annotations

import sys
from collections.abc import Sequence


class _Absent:
    """Makes pandas appear as not installed."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def keep_pandas_out() -> None:
    """Make arrays without importing pandas, which takes as long as everything else.

    pyarrow imports pandas with its first array of Python values, to recognise values of pandas. It
    does so once; code that needs pandas later, as in `to_pandas`, still gets it. For worker
    processes of Penstock, which never see such values.
    """
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        import pyarrow as pa  # noqa: PLC0415 (the first thing that is to happen)

        pa.array([0])
    finally:
        sys.meta_path.remove(absent)
