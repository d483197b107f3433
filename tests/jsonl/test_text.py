from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.jsonl._text import TextFile, read_pieces, whole_lines
from penstock.storage import LocalStore
from tests.jsonl.doors import COMPRESSIONS, both_doors, read, records
from tests.jsonl.foreign import packed
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

BOM = b"\xef\xbb\xbf"
texts = st.binary(max_size=60) | st.lists(
    st.sampled_from([b"\n", b"\r\n", b"a", b"bb\n", b"cccccc", BOM, b"\xef", b"\xbb"]), max_size=20
).map(b"".join)
# A file that begins as a compressed one is refused under a plain name.
plain = texts.filter(
    lambda text: not text.startswith((b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"BZh"))
)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Draw a text, and the same in blocks, empty ones among them."""
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return text, [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]


@given(cut_texts(), st.integers(1, 20))
@example((BOM, [b"\xef", b"", b"\xbb", b"\xbf"]), 1)
@example((b"", []), 1)
def test_any_cut_into_blocks_gives_the_same_text_in_whole_lines(
    cut: tuple[bytes, list[bytes]], piece_bytes: int
) -> None:
    text, blocks = cut
    pieces = list(whole_lines(blocks, piece_bytes))
    assert b"".join(pieces) == text.removeprefix(BOM)
    assert all(pieces)
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])


@given(cut_texts(), st.integers(1, 20))
def test_only_a_line_longer_than_that_makes_a_piece_longer_than_asked(
    cut: tuple[bytes, list[bytes]], piece_bytes: int
) -> None:
    for piece in whole_lines(cut[1], piece_bytes):
        # The first line may have begun in blocks before.
        assert len(piece.partition(b"\n")[2]) <= piece_bytes


@given(contents=st.lists(plain, min_size=1, max_size=3), piece_bytes=st.integers(1, 20))
def test_pieces_of_files_carry_the_number_of_their_first_line(
    contents: list[bytes], piece_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("files")
    sources = []
    for number, text in enumerate(contents):
        path = directory / f"{number}.jsonl"
        path.write_bytes(text)
        sources.append(TextFile(LocalStore(), str(path)))
    seen: dict[str, bytes] = {}
    for piece in read_pieces(sources, piece_bytes):
        before = seen.setdefault(piece.path, b"")
        assert piece.first_line == before.count(b"\n") + 1
        seen[piece.path] += piece.text
    expected = {
        source.name: text.removeprefix(BOM) for source, text in zip(sources, contents, strict=True)
    }
    assert seen == {name: text for name, text in expected.items() if text}


@both_doors
@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n", []),
        (b"{}", [{}]),
        (b"{}\n", [{}]),
        (b'{"a":1}\r\n{"a":2}\r\n', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\r\n{"a":2}', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\r\n{"a":2}\r', [{"a": 1}, {"a": 2}]),
        (b'{"a":1}\n\n \n\t\r\n{"a":2}\n\n', [{"a": 1}, {"a": 2}]),
        (b"\r\n\r\n", []),
        (BOM, []),
        (BOM + b"\n", []),
        (BOM + b"{}\n", [{}]),
        (BOM + b"\r\n{}", [{}]),
        (b' {"a": 1} \n\t{"a": 2}\t\n', [{"a": 1}, {"a": 2}]),
        (b'1\n"two"\n[3]\nnull\ntrue\n', [1, "two", [3], None, True]),
    ],
)
def test_line_ends_blank_lines_and_a_bom_are_read_as_they_are_found(
    text: bytes, expected: list[object], ending: str, door: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(packed(text, ending))
    assert records(path, door) == expected


@both_doors
def test_a_bom_is_skipped_only_at_the_start(door: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(BOM + b"{}\n" + BOM + b"{}\n")
    outcome = read(path, door)
    assert outcome.items == [{}]
    assert "line 2" in str(outcome.error)
    path.write_bytes(BOM + BOM + b"{}\n")
    assert "line 1" in str(read(path, door).error)


@both_doors
@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_a_line_may_be_of_any_length(ending: str, door: str, tmp_path: Path) -> None:
    size = rounds(3 << 20, 200_000_000)
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(packed(b'{"a":1}\n["' + b"x" * size + b'"]\n{"a":2}\n', ending))
    first, long, last = records(path, door)
    assert (first, last) == ({"a": 1}, {"a": 2})
    assert len(long[0]) == size
    assert long[0].count("x") == size


def test_a_line_longer_than_every_block_is_found_at_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n\n" + b"x" * (1 << 20) + b"\n\n" + b"y" * (1 << 20))
    seen: list[tuple[int, int]] = []
    outcome = read(path, "sync", on_error=lambda number, line, _: seen.append((number, len(line))))
    assert outcome.items == []
    assert seen == [(3, 1 << 20), (5, 1 << 20)]


@both_doors
def test_blank_lines_cost_no_more_than_other_lines(door: str, tmp_path: Path) -> None:
    # Each blank line once copied the rest of its piece: a quarter of a mebibyte took a minute.
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" * (1 << 18) + b"{}\n")
    assert records(path, door) == [{}]
