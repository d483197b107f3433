from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.index._thrift import DamagedStructureError, ThriftReader


def test_a_real_footer_is_read() -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"a": [True, None], "b": [[1.5], []]}), written)
    data = written.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    reader = ThriftReader(footer)
    fields = reader.structure()
    assert reader.at == len(footer)
    assert fields[3] == 2
    groups = fields[4]
    assert isinstance(groups, list)
    assert isinstance(groups[0], dict)
    assert groups[0][3] == 2


@given(st.binary(max_size=200))
def test_any_bytes_are_a_structure_or_damaged(data: bytes) -> None:
    try:
        ThriftReader(data).structure()
    except DamagedStructureError:
        return


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x15" + b"\x80" * 100, b"\x1c" * 5000, b"\x1d\0"])
def test_what_has_no_end_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedStructureError):
        ThriftReader(data).structure()
