"""Batches gathered from columns are those that decoding gives: values, types, ids and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import DataLoader
from penstock.errors import OptionError
from tests.loading.column_samples import (
    BROKEN,
    SCALARS,
    VIEWS,
    Outcome,
    json_lines,
    outcome,
    tables,
    view_of,
    write_csv,
    write_lines,
    write_parquet,
)
from tests.rounds import rounds

if TYPE_CHECKING:
    from penstock.datasets import Source

Drawn = tuple[dict[str, str], list[str]]
Chosen = dict[str, Any]
Folder = Callable[[], Path]
runs = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 6),
        "shuffle": st.sampled_from([False, True, "block"]),
        "seed": st.integers(0, 3),
        "on_error": st.sampled_from(["raise", "mask"]),
        "max_bad": st.sampled_from([100, 100, 2]),
        "drop_last": st.booleans(),
        "epochs": st.sampled_from([1, 1, 2]),
        "output": st.sampled_from([None, None, "arrow"]),
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return what makes a folder for each example."""
    return lambda: tmp_path_factory.mktemp("data")


def check(
    source: Source,
    fields: dict[str, str],
    chosen: dict[str, Any],
    seen: Callable[[Outcome], Any] = lambda one: one,
) -> None:
    """Compare a run that decodes with one that gathers, until the end or the first error."""
    try:
        decoded = DataLoader(source, fields, materialize=False, num_workers=0, **chosen)
    except OptionError as refusal:
        with pytest.raises(OptionError, match=re.escape(str(refusal))):
            DataLoader(source, fields, materialize=True, **chosen)
        return
    gathered = DataLoader(source, fields, materialize=True, **chosen)
    expected = seen(outcome(decoded))
    assert seen(outcome(gathered)) == expected
    assert gathered.explain()["columns"].startswith("gathered; they were made in")
    assert gathered.state_dict() == decoded.state_dict()
    again = DataLoader(source, fields, **chosen)
    assert seen(outcome(again)) == expected
    assert again.explain()["columns"] == "gathered; they were there"


def made(folder: Path, kind: str, drawn: tuple[dict[str, str], list[str]], view: str) -> Source:
    fields, lines = drawn
    source = write_csv(folder, lines, fields) if kind == "csv" else write_lines(folder, kind, lines)
    # A condition is asked of every record, so that all of them must be sound.
    return view_of(source, "taken" if view == "where" and BROKEN in lines else view)


@settings(max_examples=rounds(20, 1000))
@given(json_lines(), st.sampled_from(["jsonl", "jsonl", "jsonl.zst"]), st.sampled_from(VIEWS), runs)
def test_of_lines(folder: Folder, drawn: Drawn, kind: str, view: str, chosen: Chosen) -> None:
    check(made(folder(), kind, drawn, view), drawn[0], chosen)


@settings(max_examples=rounds(10, 300))
@given(json_lines(SCALARS), st.sampled_from(VIEWS), runs)
def test_of_csv(folder: Folder, drawn: Drawn, view: str, chosen: Chosen) -> None:
    # Of several values of one row that do not fit, the one that is told depends on the others.
    check(made(folder(), "csv", drawn, view), drawn[0], chosen, Outcome.in_short)


@settings(max_examples=rounds(12, 300))
@given(tables(), st.sampled_from(VIEWS), runs)
def test_of_parquet(folder: Folder, drawn: Any, view: str, chosen: Chosen) -> None:
    fields, table = drawn
    check(view_of(write_parquet(folder(), table), view), fields, chosen)


@settings(max_examples=rounds(10, 300))
@given(json_lines(), st.sampled_from(VIEWS), runs)
def test_of_gzip_in_any_order(folder: Folder, drawn: Drawn, view: str, chosen: Chosen) -> None:
    """Gzip is shuffled through columns only, so plain lines tell what is right."""
    if chosen["shuffle"] is False:
        check(made(folder(), "jsonl.gz", drawn, view), drawn[0], chosen)
        return
    order = "full" if chosen["shuffle"] is True else "block"
    plain = made(folder(), "jsonl", drawn, view)
    packed = made(folder(), "jsonl.gz", drawn, view)
    try:
        decoded = DataLoader(plain, drawn[0], materialize=False, **{**chosen, "shuffle": order})
    except OptionError:
        return
    gathered = DataLoader(packed, drawn[0], **chosen)
    assert outcome(gathered).in_short() == outcome(decoded).in_short()
