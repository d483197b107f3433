"""Sources over memory keep the contract of all sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.datasets._memory import ListSource, MapStyleSource, in_memory
from penstock.datasets._table_source import TableSource
from tests.datasets.sample import Record, filled, flat_records, sample_records
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source


class Lookup:
    """A map-style dataset that is not a list."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]


class InMemory(SourceContract):
    pickles_small = False

    @pytest.fixture
    def expected(self) -> list[Record]:
        return filled(sample_records(100))


class TestListSource(InMemory):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return sample_records(100)

    @pytest.fixture
    def open_source(self, expected: list[Record]) -> Callable[[], Source]:
        return lambda: ListSource(expected)


class TestMapStyleSource(InMemory):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return sample_records(100)

    @pytest.fixture
    def open_source(self, expected: list[Record]) -> Callable[[], Source]:
        return lambda: MapStyleSource(Lookup(expected))


class TestTableSource(InMemory):
    @pytest.fixture
    def open_source(self, expected: list[Record]) -> Callable[[], Source]:
        return lambda: TableSource(pa.Table.from_pylist(expected))


class TestTableSourceOfManyChunks(InMemory):
    @pytest.fixture
    def open_source(self, expected: list[Record]) -> Callable[[], Source]:
        table = pa.Table.from_pylist(expected)
        pieces = [table.slice(0, 1), table.slice(1, 32), table.slice(33, 0), table.slice(33)]
        return lambda: TableSource(pa.concat_tables(pieces))


class TestPolarsFrame(InMemory):
    @pytest.fixture
    def open_source(self, expected: list[Record]) -> Callable[[], Source]:
        frame = pl.DataFrame(expected, infer_schema_length=None)
        return lambda: _opened(frame)


class TestPandasFrame(InMemory):
    @pytest.fixture
    def expected(self) -> list[Record]:
        # pandas has no integers with gaps by default, and no nesting at all.
        return [{k: v for k, v in row.items() if k != "maybe"} for row in flat_records(100)]

    @pytest.fixture
    def open_source(self, expected: list[Record]) -> Callable[[], Source]:
        return lambda: _opened(pd.DataFrame(expected))


def _opened(frame: object) -> Source:
    source = in_memory(frame)
    assert isinstance(source, TableSource)
    return source
