from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.tables.parquet._groups import DamagedStructureError, ThriftReader, Value

LONG = b"\xff\xff\xff\xff\xff\x7f"
STARTS = st.sampled_from([b"", b"\x19\xf3", b"\x19\xf7", b"\x19\xf9", b"\x18", b"\x19\xfc"])


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


def values_in(value: Value) -> int:
    inside = list(value.values()) if isinstance(value, dict) else value
    return 1 + (sum(map(values_in, inside)) if isinstance(inside, list) else 0)


@given(STARTS, st.binary(max_size=200))
def test_any_bytes_hold_no_more_values_than_bytes_or_are_damaged(start: bytes, end: bytes) -> None:
    data = start + end
    reader = ThriftReader(data)
    try:
        found = reader.structure()
    except DamagedStructureError:
        return
    assert values_in(found) <= reader.at <= len(data)


@pytest.mark.parametrize("kind", [1, 3, 5, 7, 8, 9, 12])
def test_a_list_of_more_values_than_there_are_bytes_is_damaged_at_once(kind: int) -> None:
    with pytest.raises(DamagedStructureError, match="values, more than follow"):
        ThriftReader(bytes([0x19, 0xF0 | kind]) + LONG + bytes(100)).structure()


def test_bytes_behind_the_end_are_damaged() -> None:
    for data in (b"\x18" + LONG, b"\x17\x00", b"\x13", b"\x18\x02a"):
        with pytest.raises(DamagedStructureError):
            ThriftReader(data).structure()


@pytest.mark.parametrize("data", [b"", b"\x15", b"\x15" + b"\x80" * 100, b"\x1c" * 5000, b"\x1d\0"])
def test_what_has_no_end_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedStructureError):
        ThriftReader(data).structure()
