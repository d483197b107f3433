"""Views of a JSONL source keep the contract of all sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import penstock
from tests.datasets.sample import Record, sample_records
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source


def write(folder: Path, name: str, records: list[Record]) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


class ViewContract(SourceContract):
    has_raw = True

    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))

    @pytest.fixture
    def expected(self) -> list[Record]:
        return sample_records(100)


class TestTaken(ViewContract):
    pickles_small = False  # The numbers are anybody's: they travel along, 8 bytes each.

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        path = write(tmp_path, "a.jsonl", expected[::-1] + expected)
        return lambda: penstock.open(path).take(range(99, -1, -1))


class TestConcatenated(ViewContract):
    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        paths = [
            write(tmp_path, "a.jsonl", expected[:30]),
            write(tmp_path, "b.jsonl", expected[30:]),
        ]
        return lambda: penstock.open(paths[0]) + penstock.open(paths[1])


class TestPart(ViewContract):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return sample_records(100)[:60]

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        path = write(tmp_path, "a.jsonl", expected)
        return lambda: penstock.open(path).split(by="id", all=1.0)[0]


class TestMatching(ViewContract):
    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        others = [{**record, "id": -1} for record in expected]
        both = [record for pair in zip(others, expected, strict=True) for record in pair]
        path = write(tmp_path, "a.jsonl", both)
        return lambda: penstock.open(path).where("id != -1")
