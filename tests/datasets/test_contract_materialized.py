"""Sources with columns keep the contract of all sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import penstock
from tests.datasets.sample import Record, sample_records, typed_paths
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source


class TestMaterialized(SourceContract):
    """Some fields come from columns and others do not."""

    has_raw = True

    @pytest.fixture
    def expected(self) -> list[Record]:
        return sample_records(100)

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        text = "".join(json.dumps(record) + "\n" for record in expected)
        (tmp_path / "a.jsonl").write_text(text)
        fields = dict(list(typed_paths(expected).items())[::2])
        return lambda: penstock.open(tmp_path).materialize(fields)
