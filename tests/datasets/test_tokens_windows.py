"""Windows of any length and stride over the stream of all tokens."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.datasets import TokensDataset, TokenSource
from penstock.errors import OptionError
from penstock.index import create_tokenize_and_index_jsonl_text_func
from tests.datasets.token_folders import (
    EOS,
    Document,
    Folder,
    as_data_forager,
    some_documents,
    write_concat,
    write_documents,
)
from tests.rounds import rounds

# Texts may hold what ends a document.
documents = st.lists(st.lists(st.integers(EOS, 9), max_size=12), max_size=6)
texts = st.lists(documents, min_size=1, max_size=4)


def check_windows(
    rows: TokenSource, folder: Folder, how: tuple[int, int, int], *, is_told: bool
) -> None:
    """Hold windows against slices of a list."""
    length, stride, ahead = how
    stream = folder.stream
    begins = list(range(0, len(stream) - length + 1, stride))
    if folder.is_filled_up:  # No token was to be left out.
        seen = begins[-1] + length if begins else 0
        after = begins[-1] + stride if begins else 0
        begins += [after] if seen < len(stream) and after < len(stream) else []
    stops = [min(at + length + ahead, len(stream)) for at in begins]
    expected = [
        stream[at:stop] + [0] * (at + length + ahead - stop)
        for at, stop in zip(begins, stops, strict=True)
    ]
    assert rows[:].tolist() == expected
    assert rows[-1].tolist() == expected[-1]
    ids = np.random.default_rng(0).integers(0, len(begins), 50)
    assert rows.read(ids).tolist() == [expected[i] for i in ids]
    assert rows.lengths(ids).tolist() == [stops[i] - begins[i] for i in ids]
    ends = rows.document_ends(ids)
    assert (ends is not None) == is_told
    if ends is not None:
        values, offsets = ends
        assert [values[low:high].tolist() for low, high in pairwise(offsets.tolist())] == [
            [at - begins[i] for at in folder.borders if begins[i] < at < stops[i]]
            + [stops[i] - begins[i]]
            for i in ids
        ]


@settings(max_examples=rounds(30, 5000), deadline=None)
@given(
    texts,
    st.sampled_from(["concat", "padded", "documents", "foreign", "foreign documents"]),
    st.integers(1, 9),
    st.integers(1, 25),
    st.integers(1, 30),
    st.integers(0, 4),
)
def test_windows_are_slices_of_all_tokens(  # noqa: PLR0913, PLR0917
    files: list[list[Document]], kind: str, size: int, length: int, stride: int, ahead: int
) -> None:
    with tempfile.TemporaryDirectory() as base:
        path = Path(base) / "data"
        if kind.endswith("documents"):
            folder = write_documents(path, files)
        else:
            folder = write_concat(path, files, size, pad=kind == "padded")
        if kind.startswith("foreign"):
            as_data_forager(folder)
        source = TokensDataset.create_from_index_on_filesystem(path)
        if len(folder.stream) < length and not folder.is_filled_up:
            with pytest.raises(OptionError, match=f"{len(folder.stream):,}"):
                source.windows(length, stride, ahead=ahead)
            return
        rows = source.windows(length, stride, ahead=ahead)
        # Documents that happen to have one length are samples of one size to a stranger.
        is_told = not kind.startswith("foreign") or source.sample_size is None
        check_windows(rows, folder, (length, stride, ahead), is_told=is_told)
        blocks = rows.blocks
        assert (blocks[0], blocks[-1]) == (0, len(rows))
        assert (np.diff(blocks) > 0).all()
        generic = Unmapped(source).windows(length, stride, ahead=ahead)
        assert generic[:].tolist() == rows[:].tolist()


class Unmapped(TokenSource):
    """A source that implements what it must and nothing else."""

    def __init__(self, source: TokenSource) -> None:
        self.rows = [source[i].tolist() for i in range(len(source))]
        self.real = source.lengths(np.arange(len(source)))
        self.width = source.sample_size

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fingerprint(self) -> str:
        return "unmapped"

    @property
    def token_dtype(self) -> np.dtype[np.uint16]:
        return np.dtype(np.uint16)

    @property
    def sample_size(self) -> int | None:
        return self.width

    def _flat(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [np.array(self.rows[i], np.uint16) for i in ids]
        lengths = np.array([len(row) for row in rows], np.int64)
        return np.concatenate([np.empty(0, np.uint16), *rows]), lengths

    def _lengths(self, ids: np.ndarray) -> np.ndarray:
        return self.real[ids]


def test_without_a_stride_windows_do_not_overlap(tmp_path: Path) -> None:
    folder = write_concat(tmp_path / "data", some_documents(3, 40), 16)
    source = penstock.open(folder.path)
    assert isinstance(source, TokensDataset)
    rows = source.windows(10)
    assert rows[:].reshape(-1).tolist() == folder.stream[: len(rows) * 10]
    assert rows.fingerprint != source.fingerprint
    fingerprints = {
        source.windows(*how, ahead=a).fingerprint for how in ((10,), (10, 9)) for a in (0, 1)
    }
    assert len(fingerprints) == 4


def test_what_cannot_be_a_window_is_refused(tmp_path: Path) -> None:
    source = penstock.open(write_concat(tmp_path / "data", some_documents(1, 40), 16).path)
    assert isinstance(source, TokensDataset)
    for wrong, name in (
        ((0,), "length=0"),
        ((1.5,), "length=1.5"),
        ((True,), "length=True"),
        ((4, 0), "stride=0"),
        ((4, -1), "stride=-1"),
        ((4, "2"), "stride='2'"),
    ):
        with pytest.raises(OptionError, match=name):
            source.windows(*wrong)
    with pytest.raises(OptionError, match="ahead=-1"):
        source.windows(4, ahead=-1)
    with pytest.raises(OptionError, match="windows already"):
        source.windows(4).windows(2)
    with pytest.raises(OptionError, match=r"source\.windows"):
        source.take([1, 2]).windows(2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("keep_remainder", ["drop", "pad"])
def test_a_text_that_holds_the_end_token_at_a_sample_border_goes_on(
    tmp_path: Path, keep_remainder: Literal["drop", "pad"]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "abcde"}\n{"text": "dd"}\n')
    create_tokenize_and_index_jsonl_text_func(
        lambda text: [ord(letter) - 96 for letter in text],
        4,
        tmp_path,
        sample_size=4,
        keep_remainder=keep_remainder,
        num_workers=0,
        progress=False,
    )()
    source = penstock.open(tmp_path)
    assert isinstance(source, TokensDataset)
    stream = [1, 2, 3, 4, 5, 4, 4, 4, 4][: 8 if keep_remainder == "drop" else 9]
    assert source.windows(len(stream))[0].tolist() == stream
    for length, ends in ((6, [6]), (7, [6, 7]), (8, [6, 8])):
        values, _ = source.windows(length).document_ends([0]) or ([], [])
        assert list(values) == ends


def test_many_windows_of_several_files_are_taken_at_once(tmp_path: Path) -> None:
    """More than are copied one by one, some of them over the borders of files."""
    folder = write_concat(tmp_path / "data", some_documents(5, 100, seed=4), 16)
    source = penstock.open(folder.path)
    assert isinstance(source, TokensDataset)
    rows = source.windows(40, 3, ahead=1)
    ids = np.random.default_rng(1).permutation(len(rows))
    stream = [*folder.stream, 0]
    assert rows[ids].tolist() == [stream[i * 3 : i * 3 + 41] for i in ids]
    assert source[ids % len(source)].tolist() == [folder.rows[i % len(source)] for i in ids]
    where = rows.location(np.array([0, 50]))
    assert where.offset.tolist() == [0, 50 * 3 * 2]
