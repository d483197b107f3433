"""Fields that are only named: their types come from the profile, or else from the schema."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.batch import Masked
from penstock.index import create_default_jsonl_indexer

if TYPE_CHECKING:
    from pathlib import Path

# The schema looks at up to 1,000 records, none of which is the odd one.
ODD = 1999


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [{"n": n, "mixed": n, "price": n / 2} for n in range(4000)]
    records[ODD] = {"n": None, "mixed": "text", "price": 1}  # type: ignore[dict-item]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return tmp_path


def test_a_profile_knows_what_a_look_at_some_records_does_not(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_default_jsonl_indexer(folder, profile=True)()
    with caplog.at_level(logging.INFO, "penstock.loading"):
        loader = penstock.DataLoader(penstock.open(folder), ["n", "price"], batch_size=4000)
    assert "from the profile: FieldEncoder({'n': 'int64?', 'price': 'float64'})" in caplog.text
    (batch,) = loader
    assert isinstance(batch["n"], Masked)
    assert batch["n"].mask.sum() == 3999


def test_without_a_profile_the_schema_says_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "penstock.loading"):
        penstock.DataLoader(penstock.open(folder), ["n"], batch_size=4)
    assert "from the schema: FieldEncoder({'n': 'int64'})" in caplog.text


def test_a_field_of_several_types_holds_all_of_them(folder: Path) -> None:
    create_default_jsonl_indexer(folder, profile=True)()
    batches = [*penstock.DataLoader(penstock.open(folder), ["n", "mixed"], batch_size=400)]
    mixed = [value for batch in batches for value in batch["mixed"]]
    assert mixed == [*range(ODD), "text", *range(ODD + 1, 4000)]


def test_a_damaged_profile_is_told_of_and_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_default_jsonl_indexer(folder, profile=True)()
    (folder / "index" / "profile.json").write_text("{")
    penstock.DataLoader(penstock.open(folder), ["n"], batch_size=4)
    assert "taken from the schema, not from the profile" in caplog.text
