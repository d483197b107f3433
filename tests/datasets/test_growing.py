"""Files that are read while they are written: pure appends keep every number and every state."""

from __future__ import annotations

import bz2
import gzip
import pickle
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.errors import ChangedSourceError, PenstockError, StaleIndexError
from penstock.index import create_default_jsonl_indexer, read_bad_lines, read_profile
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source

LINES = '{"n": 1, "t": "Zoë"}\n\n  {"n": 12}\r\n{"n": 123}'
ROWS = 'n,t\n1,Zoë\n12,"x ""y"""\n\n123,"a\nb"\n4,12\n'
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
"""What makes a text the bytes of a file, of which several may follow each other."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / ".cache"))


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def looks_at(path: Path, parts: list[bytes]) -> list[Source]:
    """Return the source after each of some appends, where it could be opened."""
    sources = []
    for part in parts:
        append(path, part)
        try:
            sources.append(penstock.open(path))
        except PenstockError as why:  # Nothing but the half of a row or of its header.
            assert "never closed" in str(why) or "no records" in str(why)  # noqa: PT017
    return sources


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize(("kind", "text"), [("jsonl", LINES), ("csv", ROWS)])
def test_wherever_a_file_was_cut_its_records_keep_their_numbers(
    kind: str, text: str, ending: str, tmp_path: Path
) -> None:
    data, pack = text.encode(), PACKED[ending]
    fresh = tmp_path / f"fresh.{kind}{ending}"
    fresh.write_bytes(pack(data))
    whole = penstock.open(fresh)
    for cut in range(1, len(data), 1 if not ending else 9):
        path = tmp_path / f"{cut}.{kind}{ending}"
        sources = looks_at(path, [pack(data[:cut]), pack(data[cut:])])
        last = sources[-1]
        assert last[:] == whole[:]
        assert last.schema == whole.schema
        if len(sources) > 1:
            assert last.was(sources[0].fingerprint, len(sources[0]))


def test_a_look_at_every_byte_finds_the_same_records_as_one_look(tmp_path: Path) -> None:
    for kind, text in (("jsonl", LINES), ("csv", ROWS)):
        data = text.encode()
        path, fresh = tmp_path / f"grown.{kind}", tmp_path / f"fresh.{kind}"
        sources = looks_at(path, [data[at : at + 1] for at in range(len(data))])
        fresh.write_bytes(data)
        whole, last = penstock.open(fresh), sources[-1]
        assert last[:] == whole[:]
        for number in range(len(whole)):  # A line end that came alone is not looked for.
            assert whole.location(number).offset == last.location(number).offset
            assert whole.raw(number).rstrip() == last.raw(number).rstrip()
        assert all(sources[-1].was(source.fingerprint, len(source)) for source in sources)


def test_a_last_record_that_turns_out_to_be_none_numbers_all_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    sources = looks_at(path, [b"\xef\xbb", b"\xbf\n"])
    assert list(map(len, sources)) == [1, 0]


@given(data=st.data())
@settings(max_examples=rounds(5, 500), deadline=None)
def test_files_that_grow_in_turn_keep_the_numbers_of_all_records(data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        base = Path(place) / "data"
        base.mkdir()
        packs = [data.draw(st.sampled_from([*PACKED])) for _ in range(2)]
        rests = [
            b"".join(b'{"id": "%d-%d \xc3\xa4"}\n' % (file, number) for number in range(6))
            for file in range(2)
        ]
        seen: list[tuple[str, list[str]]] = []
        while any(rests):
            file = data.draw(st.sampled_from([at for at in range(2) if rests[at]]))
            size = data.draw(st.integers(1, len(rests[file])))
            text, rests[file] = rests[file][:size], rests[file][size:]
            append(base / f"{file}.jsonl{packs[file]}", PACKED[packs[file]](text))
            source = penstock.open(base, index=base.parent / "index")
            texts = [source.raw(number).decode(errors="replace") for number in range(len(source))]
            for fingerprint, before in seen:
                assert source.was(fingerprint, len(before))
                for number, text_before in enumerate(before):
                    assert texts[number].startswith(text_before.rstrip("\ufffd"))
            seen.append((source.fingerprint, texts))
        assert sorted(record["id"] for record in source) == [
            f"{file}-{number} ä" for file in range(2) for number in range(6)
        ]


@pytest.mark.parametrize("options", [{"shuffle": True}, {"shuffle": "block"}, {"weights": "w"}])
def test_a_run_over_half_a_line_goes_on_when_the_line_is_whole(
    options: dict[str, Any], tmp_path: Path
) -> None:
    growing, whole = tmp_path / "growing.jsonl", tmp_path / "whole.jsonl"
    text = "".join(f'{{"n": {n}, "w": 1}}\n' for n in range(12))
    whole.write_text(text)
    growing.write_text(text[: -4 if "weights" not in options else -1])

    def load(path: Path) -> penstock.DataLoader:
        given: Any = {"batch_size": 4, "seed": 5, "num_workers": 0, "on_error": "mask"}
        return penstock.DataLoader(path, {"n": "int64"}, **given, **options)

    expected = [batch["n"].tolist() for batch in load(whole)]
    loader = load(growing)
    next(iter(loader))
    state = loader.state_dict()
    for part in (text[-4:] if "weights" not in options else "\n", '{"n": 12, "w": 1}\n{"n"'):
        append(growing, part.encode())
        resumed = load(growing)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What was appended is not in this run.
            resumed.load_state_dict(state)
        assert [batch["n"].tolist() for batch in resumed] == expected[1:]


@pytest.mark.parametrize("view", ["itself", "split", "mixture"])
def test_weights_and_codes_that_rest_on_half_a_value_are_refused(view: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,w\n" + "".join(f"x,{n}\n" for n in range(1, 20)) + "yy,12")

    def load(**options: Any) -> penstock.DataLoader:
        source: Any = penstock.open(path)
        if view == "split":
            source = source.split(a=0.5, b=0.5)[0]
        if view == "mixture" and "weights" not in options:
            source = penstock.Mixture({"x": source}, weights={"x": 1})
        return penstock.DataLoader(source, batch_size=1, num_workers=0, **options)

    ways: list[dict[str, Any]] = [{"encode": {"t": "category"}}, {"weights": "w"}]
    states = [load(**way).state_dict() for way in ways]
    append(path, b"3\nz,4\n")
    for way, state in zip(ways, states, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What was appended is not in this run.
            with pytest.raises(ChangedSourceError, match="was not complete yet"):
                load(**way).load_state_dict(state)
            load(**way, on_changed="continue").load_state_dict(state)
            later = load(**way).state_dict()
            append(path, b"z,4\n")
            load(**way).load_state_dict(later)
    whole = [load(**way).state_dict() for way in ways]
    for way, state in zip(ways, whole, strict=True):
        load(**way).load_state_dict(state)


def test_a_mixture_goes_on_when_the_last_lines_of_its_sources_are_whole(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.jsonl" for name in "ab"]
    for path in paths:
        path.write_text('{"n": 1}\n{"n": 2')

    def load() -> penstock.DataLoader:
        mixture = penstock.Mixture(
            {path.stem: penstock.open(path) for path in paths}, weights={"a": 1, "b": 1}
        )
        return penstock.DataLoader(mixture, batch_size=1, num_workers=0)

    state = load().state_dict()
    for path in paths:
        append(path, b"}\n")
        load().load_state_dict(state)


def test_another_process_finds_the_records_that_were_opened_here(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n{"n": 2')
    opened = penstock.open(path)
    pickled = pickle.dumps(opened)
    append(path, b'}\n{"n": 3}\n')
    assert len(penstock.open(path)) == 3
    there = pickle.loads(pickled)
    assert (there.fingerprint, there[:]) == (opened.fingerprint, [{"n": 1}, {"n": 2}])


def test_an_update_of_an_index_with_checks_looks_at_the_line_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"n": 1}\noops\n{"n": 2')
    create_default_jsonl_indexer(tmp_path, validate=True, profile=True)()
    before = penstock.open(tmp_path)
    assert len(before) == 2
    append(tmp_path / "a.jsonl", b"2}\n")
    create_default_jsonl_indexer(tmp_path, update=True)()
    after = penstock.open(tmp_path)
    assert after[:] == [{"n": 1}, {"n": 1}, {"n": 22}]
    assert after.was(before.fingerprint, 2)
    bad = [(line.file, line.line) for line in read_bad_lines(tmp_path / "index")]
    assert bad == [("b.jsonl", 2), ("b.jsonl", 3), ("a.jsonl", 2)]
    assert read_profile(tmp_path / "index") is None
    assert "Make it again: penstock profile" in caplog.text


def test_a_record_that_an_update_would_have_to_set_aside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}')
    create_default_jsonl_indexer(tmp_path, validate=True)()
    append(tmp_path / "a.jsonl", b" oops\n")
    with pytest.raises(StaleIndexError, match=r"went on .* is none any more.*--overwrite"):
        create_default_jsonl_indexer(tmp_path, update=True)()
    create_default_jsonl_indexer(tmp_path, validate=True, overwrite=True)()
    assert len(penstock.open(tmp_path)) == 0


def test_a_column_of_a_value_that_went_on_is_decoded_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,n\n0,1\n0,12")
    early = penstock.open(path)
    append(path, b"3\n")  # The early columns are made of the early rows of a longer file.
    early.materialize({"n": "int64"}, progress=False)
    now = penstock.open(path)
    assert now.was(early.fingerprint, 2)
    columns = now.materialize({"n": "int64"}, progress=False)
    assert columns.read([0, 1], ["n"])["n"].to_pylist() == [1, 123]
