"""The elements of JSON arrays: found in any blocks, checked, numbered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import MalformedLineError, OptionError, StaleIndexError
from penstock.index import read_bad_lines
from penstock.index._array import ArrayScan
from penstock.index._heads import is_document
from tests.cli.commands import document, invoke

if TYPE_CHECKING:
    from pathlib import Path

texts = st.text(st.sampled_from('"\\[]{}, \n\taé'), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def scanned(text: bytes, size: int, largest: int = 1 << 20) -> list[Any]:
    """Return the elements that a scan in blocks of a size finds."""
    scan = ArrayScan("a.json", largest=largest)
    cuts = range(0, len(text), size)
    rows = [row for at in cuts for row in scan.add(text[at : at + size]).tolist()]
    rows += scan.finish().tolist()
    parts = [text[at : at + length] for at, length in rows]
    assert parts == [part.strip() for part in parts]
    return [json.loads(part) for part in parts]


@given(
    st.lists(values, max_size=6),
    st.sampled_from([None, 0, 1, 80]),
    st.tuples(st.sampled_from(["", "\ufeff", " \r\n"]), st.sampled_from(["", "\n", " \t"])),
    st.integers(3, 90),
)
def test_elements_are_those_of_json_in_blocks_of_any_size(
    elements: list[Any], indent: int | None, around: tuple[str, str], size: int
) -> None:
    text = around[0] + json.dumps(elements, indent=indent, ensure_ascii=False) + around[1]
    assert scanned(text.encode(), size) == elements


@pytest.mark.parametrize(
    ("text", "why", "at"),
    [
        (b"[1,,2]", "an element is missing", 3),
        (b"[1, ]", "an element is missing", 4),
        (b"[,]", "an element is missing", 1),
        (b"[1", "the array has no end", 2),
        (b'["a]', "the file ends inside of a text", 4),
        (b'["a\\"]', "the file ends inside of a text", 6),
        (b"[1] [2]", "something stands behind the end of the array", 4),
        (b"[1]]", "something stands behind the end of the array", 3),
        (b"[{]}", "a bracket closes that none opened", 3),
        (b" {}", "no array begins", 1),
    ],
)
def test_what_is_no_array_is_named_with_its_byte(text: bytes, why: str, at: int) -> None:
    for size in (1, 3, 100):
        with pytest.raises(MalformedLineError, match=f"a.json is no JSON array: {why}") as caught:
            scanned(text, size)
        assert caught.value.offset == at  # type: ignore[attr-defined]


def test_a_quote_that_stays_open_is_found_before_memory_ends() -> None:
    with pytest.raises(MalformedLineError, match="longer than 1,000 bytes"):
        scanned(b'[1, "' + b"x" * 5000 + b"]", 100, largest=1000)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{\n "a": 1\n}', True),
        (b'\xef\xbb\xbf{"a": [\r\n1', True),
        (b"{\n}\n", True),
        (b'{"a": 1}\n{"a": 2}\n', False),
        (b'{"a": 1}\n\nnonsense\n', False),
        (b'{"a": nonsense}\n{"a": 2}', False),
        (b'{"a": 1}', False),
        (b"", False),
    ],
)
def test_an_object_over_several_lines_is_told_from_lines(head: bytes, expected: object) -> None:
    assert is_document(head) is expected


def test_bad_elements_are_set_aside_and_found_by_check(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"n": 1},\n {"n": },\n 7,\n {"n": 4}]\n')
    told = document("check", path, code=1)
    assert [(one["kind"], one["line"]) for one in told["shown"]] == [
        ("malformed element", 2),
        ("malformed element", 3),
    ]
    assert told["records"] == 2
    index = tmp_path / "index"
    assert invoke("index", path, "--validate", "--profile", "--index", index).exit_code == 1
    assert [(bad.line, bad.offset, bad.bytes) for bad in read_bad_lines(index)] == [
        (2, 12, 7),
        (3, 22, 1),
    ]
    assert penstock.open(path, index=index)[:] == [{"n": 1}, {"n": 4}]
    with pytest.raises(MalformedLineError, match="record 1 "):
        _ = penstock.open(path)[1]


def test_an_array_that_breaks_off_is_refused_and_what_came_before_is_checked(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"n": 1}, oh, {"n": 2}')
    with pytest.raises(MalformedLineError, match="the array has no end"):
        penstock.open(path)
    told = document("check", path, code=1)
    assert [one["reason"][:22] for one in told["shown"]][1] == "is no JSON array: the "
    assert told["records"] == 1
    assert document("check", path, "--sample", "100%", code=1) == {**told, "sample": 1}


def test_an_array_that_changed_is_not_read_by_its_old_places(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"n": 1}]\n')
    assert len(penstock.open(path)) == 1
    path.write_text('[{"n": 3}, {"n": 2}]\n')
    with pytest.raises(StaleIndexError):
        penstock.open(path, refresh="never")
    assert [record["n"] for record in penstock.open(path)] == [3, 2]


@pytest.mark.parametrize("verb", ["info", "check", "show", "index"])
@pytest.mark.parametrize(
    "text",
    [json.dumps({"data": [{"n": 1}]}, indent=2), '{"data": [\n  {"n": 1},\n  {"n": 2}\n]}\n'],
)
def test_an_object_over_several_lines_is_refused_by_every_verb(
    verb: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(OptionError, match=r"a\.json holds a JSON object over several lines"):
        penstock.open(path)
    done = invoke(verb, path)
    assert done.exit_code == 2
    assert "jq -c '.NAME[]'" in done.stderr


def test_no_index_is_made_of_a_folder_with_an_array_among_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n')
    (tmp_path / "b.json").write_text('[{"n": 2}]')
    with pytest.raises(OptionError, match=r"b\.json holds JSON arrays, where JSON Lines are exp"):
        penstock.open(tmp_path)
    assert not (tmp_path / "index").exists()
    assert invoke("convert", tmp_path, tmp_path / "out" / "c.jsonl").exit_code == 2
