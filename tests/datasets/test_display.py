"""A look at a source is short, safe to show, and never fails."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets._display import html_of, text_of
from penstock.datasets._memory import ListSource, MapStyleSource
from penstock.datasets._table_source import TableSource
from penstock.errors import StaleIndexError
from tests.datasets.sample import sample_records
from tests.decode.json_values import records

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Filed(ListSource):
    """Records that say they lie in files."""

    def __init__(self, files: list[str]) -> None:
        super().__init__([{"id": 1}])
        self._files = files

    @property
    def files(self) -> list[str]:
        return self._files


class Broken(ListSource):
    """A source whose files are gone."""

    @property
    def files(self) -> list[str]:
        raise StaleIndexError("the files are gone")

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        raise StaleIndexError("logs/<b>.jsonl is gone & away")


class Checker(HTMLParser):
    """Takes HTML whose tags open and close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


TAGS = {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "p"}


def test_a_line_says_kind_count_and_fields() -> None:
    assert text_of(ListSource(sample_records(2000))) == (
        "ListSource of 2,000 records: id int64, score float64, name string, flag bool, "
        "maybe int64, user struct<age int64, home struct<city string>>, tags list<string>, "
        "items list<struct<sku int64, price float64>>"
    )


@pytest.mark.parametrize(
    ("files", "place"),
    [
        (["logs/a.jsonl"], "in logs/a.jsonl"),
        (["logs/a.jsonl", "logs/b.jsonl"], "in 2 files at logs/"),
        (["logs/2024/ab.jsonl", "logs/2025/ab.jsonl", "logs/x"], "in 3 files at logs/"),
        (["s3://bucket/a", "s3://bucket/b"], "in 2 files at s3://bucket/"),
        (["a", "b"], "in 2 files at ."),
    ],
)
def test_a_line_says_where_the_files_are(files: list[str], place: str) -> None:
    text = text_of(Filed(files))
    assert text.startswith(f"Filed of 1 record {place} (fingerprint ")
    assert text.endswith("…): id int64")


def test_a_look_does_not_hash_everything_for_its_fingerprint() -> None:
    source = ListSource([{"a": 1}])
    assert "fingerprint" not in text_of(source)
    known = source.fingerprint
    assert f"(fingerprint {known[:8]}…)" in text_of(source)


def test_many_fields_and_long_types_are_cut() -> None:
    wide = ListSource([{f"field{i}": i for i in range(100)}])
    assert text_of(wide).endswith("field11 int64, … 88 fields more")
    deep = TableSource(pa.table({"s": [{f"name{i}": i for i in range(50)}]}))
    assert text_of(deep) == "TableSource of 1 record: s struct<…>"


def test_a_broken_source_is_looked_at_without_an_error() -> None:
    broken = Broken([{"a": 1}])
    assert repr(broken) == "Broken of 1 record"
    page = Checker(html_of(broken))
    text = "".join(page.texts)
    assert "StaleIndexError: logs/<b>.jsonl is gone & away" in text


def test_records_of_any_kind_are_shown() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    page = Checker(html_of(MapStyleSource([np.arange(3), (1, 2), Silent(), b"x" * 1000])))
    text = " ".join(page.texts)
    assert "array([0, 1, 2])" in text
    assert "Silent without a text: RuntimeError" in text
    assert max(map(len, page.texts)) <= 80
    assert repr(MapStyleSource([1])) == "MapStyleSource of 1 record"


def test_only_the_first_records_and_columns_are_shown() -> None:
    page = Checker(html_of(ListSource([{f"c{i}": i for i in range(30)} for _ in range(100)])))
    assert page.seen.count("tr") == 1 + 1 + 5
    assert "… 10 more" in page.texts
    assert "c20" not in page.texts


@given(records())
def test_any_records_make_valid_html(rows: list[dict[str, object]]) -> None:
    page = Checker(html_of(ListSource(rows)))
    assert set(page.seen) <= TAGS


@given(st.text(max_size=200))
def test_no_value_becomes_a_tag(value: str) -> None:
    hostile = f"<script>{value}</script>"
    source = ListSource([{hostile: hostile, "n": {hostile: [hostile]}}])
    assert set(Checker(html_of(source)).seen) <= TAGS


def test_a_source_with_columns_tells_which() -> None:
    columns = ListSource(sample_records(3)).materialize({"id": "int8", "user.age": "int16"})
    assert text_of(columns) == "Materialized of 3 records: columns of id int8, user.age int16"
    assert "columns of id int8" in html_of(columns)
    none = ListSource([]).materialize({"id": "int8"})
    assert text_of(none) == "Materialized of 0 records: no columns"
