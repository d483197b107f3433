from __future__ import annotations

import datetime as dt
import os
import pickle
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets.views._split import key_hashes
from penstock.errors import OptionError, StaleIndexError
from tests.datasets.listed_source import ListedSource

SHARES = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(
    lambda parts: {f"part{number}": part / sum(parts) for number, part in enumerate(parts)}
)
KEYS = st.one_of(st.none(), st.integers(0, 5), st.integers(-(2**63), 2**63 - 1))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def numbered(count: int, block: int | None = None, path: str | None = None) -> ListedSource:
    return ListedSource([{"n": number} for number in range(count)], block, path)


def owners(parts: tuple[Any, ...]) -> dict[int, int]:
    """Return the part of every record number, which must be in one part only."""
    found: dict[int, int] = {}
    for part, view in enumerate(parts):
        for number in view.ids.tolist():
            assert number not in found
            found[number] = part
    return found


@given(count=st.integers(0, 300), seed=st.integers(-(2**70), 2**70), shares=SHARES)
def test_parts_are_disjoint_cover_everything_and_keep_the_order(
    count: int, seed: int, shares: dict[str, float]
) -> None:
    parts = numbered(count).split(seed=seed, **shares)
    assert len(parts) == len(shares)
    assert sorted(owners(parts)) == list(range(count))
    for part in parts:
        assert all(a < b for a, b in pairwise(record["n"] for record in part))


@given(count=st.integers(0, 200), more=st.integers(0, 200), seed=st.integers(0, 9), shares=SHARES)
def test_a_record_keeps_its_part_when_data_is_appended(
    count: int, more: int, seed: int, shares: dict[str, float]
) -> None:
    before = owners(numbered(count).split(seed=seed, **shares))
    after = owners(numbered(count + more).split(seed=seed, **shares))
    assert before.items() <= after.items()


@given(keys=st.lists(KEYS, min_size=1), late=st.lists(KEYS), shares=SHARES)
def test_records_of_one_key_stay_together_also_when_data_is_appended(
    keys: list[int | None], late: list[int | None], shares: dict[str, float]
) -> None:
    early = ListedSource([{"u": {"id": key}} for key in keys])
    grown = ListedSource([{"u": {"id": key}} for key in [*keys, *late]])
    before = owners(early.split(by="u.id", seed=1, **shares))
    after = owners(grown.split(by="u.id", seed=1, **shares))
    assert before.items() <= after.items()
    where: dict[object, int] = {}
    for number, key in enumerate([*keys, *late]):
        assert where.setdefault(key, after[number]) == after[number]


@pytest.mark.parametrize("by", [None, "n"])
def test_parts_have_their_share_of_records(by: str | None) -> None:
    count = 20_000
    parts = numbered(count).split(by=by, a=0.5, b=0.3, c=0.2)
    for part, share in zip(parts, (0.5, 0.3, 0.2), strict=True):
        assert abs(len(part) / count - share) < 5 * sqrt(share * (1 - share) / count)


def test_parts_have_names_and_unpack() -> None:
    parts = numbered(100).split(train=0.9, val=0.1)
    train, val = parts
    assert parts.train is train  # type: ignore[attr-defined]
    assert parts.val is val  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no part 'test'"):
        _ = parts.test  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(parts))
    assert again.val[:] == val[:]


def test_the_division_is_the_same_in_every_release() -> None:
    a, _ = numbered(20).split(a=0.5, b=0.5)
    assert a.ids.tolist() == [4, 5, 7, 8, 11, 13, 15, 17, 18]
    b, _ = numbered(20).split(a=0.5, b=0.5, seed=3, by="n")
    assert b.ids.tolist() == [0, 1, 4, 5, 8, 11, 12, 14, 17, 18]
    values = pa.array(["x", "", None, "ü"])
    assert key_hashes(values, 7, "v").tolist() == [
        4519824659946044422,
        7288634180533250744,
        10210559271479601682,
        5403863747264130202,
    ]


@pytest.mark.parametrize(
    ("values", "type_", "texts"),
    [
        ([1, -5, 2**63 - 1, None], pa.int64(), ["1", "-5", str(2**63 - 1), None]),
        ([2**64 - 1], pa.uint64(), [str(2**64 - 1)]),
        ([1.0, 0.5, -0.0, 1e30, None], pa.float64(), ["1", "0.5", "0", str(int(1e30)), None]),
        ([0.5, 3.0], pa.float32(), ["0.5", "3"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        (["a", None], pa.large_string(), ["a", None]),
        (["a", None], pa.string_view(), ["a", None]),
        (["a", None, "a"], pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"]),
        ([None, None], pa.null(), [None, None]),
        ([dt.date(2024, 1, 2)], pa.date32(), ["2024-01-02"]),
        ([1], pa.timestamp("ns"), ["1970-01-01 00:00:00.000000001"]),
        ([Decimal("1.50")], pa.decimal128(5, 2), ["1.50"]),
        ([b"\x00\xff"], pa.binary(), ["00ff"]),
    ],
)
def test_a_key_is_its_text_whatever_type_holds_it(
    values: list[Any], type_: pa.DataType, texts: list[str | None]
) -> None:
    hashes = key_hashes(pa.array(values, type_), 1, "v")
    assert hashes.tolist() == key_hashes(pa.array(texts, pa.string()), 1, "v").tolist()


def test_no_key_and_the_words_for_it_are_different_keys() -> None:
    hashes = key_hashes(pa.array([None, "null", "", "None", "\0"]), 1, "v")
    assert len(set(hashes.tolist())) == 5


def test_a_field_that_turns_from_numbers_to_texts_divides_nobody() -> None:
    old = ListedSource([{"u": number} for number in range(50)])
    new = ListedSource([{"u": str(number)} for number in range(50)])
    assert owners(old.split(by="u", a=0.5, b=0.5)) == owners(new.split(by="u", a=0.5, b=0.5))
    both = (old + new).split(by="u", a=0.5, b=0.5)
    found = owners(both)
    assert all(found[number] == found[number + 50] for number in range(50))


def test_another_seed_is_another_division() -> None:
    source = numbered(1000)
    for by in (None, "n"):
        first, second = (owners(source.split(by=by, seed=seed, a=0.5, b=0.5)) for seed in (1, 2))
        agree = sum(first[number] == second[number] for number in range(1000))
        assert 400 < agree < 600


def test_splitting_a_part_again_with_another_seed_keeps_the_shares() -> None:
    half, _ = numbered(8000).split(a=0.5, b=0.5)
    quarter, _ = half.split(a=0.5, b=0.5, seed=1)
    assert 1800 < len(quarter) < 2200


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({}, "needs shares"),
        ({"a": 0.5, "b": 0.6}, "a=0.5, b=0.6 sum to 1.1"),
        ({"a": 0.5}, "sum to 0.5"),
        ({"a": 1.0, "b": 0.0}, "b=0.0: a share is a positive"),
        ({"a": 1.5, "b": -0.5}, "b=-0.5"),
        ({"a": float("nan"), "b": 0.5}, "a=nan"),
        ({"a": "half"}, "a='half'"),
    ],
)
def test_shares_that_cannot_be_are_refused(shares: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        numbered(10).split(**shares)


def test_shares_of_thirds_and_tenths_sum_to_one() -> None:
    assert len(numbered(10).split(a=1 / 3, b=1 / 3, c=1 / 3)) == 3
    assert len(numbered(10).split(**{f"p{number}": 0.1 for number in range(10)})) == 10
    assert len(numbered(10).split(all=1)[0]) == 10


def test_a_field_that_no_record_has_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match=r"'usr'.* n"):
        numbered(10).split(by="usr", a=1.0)
    assert len(numbered(0).split(by="usr", a=1.0)[0]) == 0


def test_a_field_that_is_a_list_or_an_object_is_no_key() -> None:
    source = ListedSource([{"u": {"id": 1}, "l": [1]}])
    for by in ("u", "l"):
        with pytest.raises(OptionError, match=f"by='{by}' is .*one value"):
            source.split(by=by, a=1.0)


def test_a_part_pickles_small_and_finds_its_numbers_in_another_process(tmp_path: Path) -> None:
    source = numbered(30)
    source.records *= 2000
    part, _ = source.split(by="n", a=0.5, b=0.5)
    assert len(part.ids) > 10_000
    assert len(pickle.dumps(part)) - len(pickle.dumps(source)) < 600
    (tmp_path / "part").write_bytes(pickle.dumps(part))
    program = (
        "import pickle, sys; part = pickle.load(open(sys.argv[1], 'rb'));"
        "print(len(part), sum(part.ids.tolist()), part.fingerprint)"
    )
    out = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "part"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "PYTHONHASHSEED": "7"},
    ).stdout.split()
    assert out == [str(len(part)), str(int(part.ids.sum())), part.fingerprint]


def test_keys_are_read_once_for_all_parts_and_threads() -> None:
    source = numbered(1000)
    copies = pickle.loads(pickle.dumps(source.split(by="n", a=0.5, b=0.5)))
    copied = copies[0].source
    copied.calls.clear()
    with ThreadPoolExecutor(8) as pool:
        lengths = list(pool.map(len, list(copies) * 8))
    assert sum(lengths[:2]) == 1000
    assert Counter(copied.calls) == {("columns", 1000): 1}


def test_numbers_of_records_in_files_are_found_once_and_then_mapped(cache: Path) -> None:
    first = numbered(1000, path="a.jsonl").split(by="n", a=0.5, b=0.5)
    assert len(list((cache / "views").glob("*.npy"))) == 2
    assert (cache / "views" / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172")
    assert (cache / "views" / ".gitignore").read_text() == "*\n"
    source = numbered(1000, path="a.jsonl")
    second = source.split(by="n", a=0.5, b=0.5)
    assert not source.calls
    for one, other in zip(first, second, strict=True):
        assert isinstance(other.ids, np.memmap)
        assert np.array_equal(one.ids, other.ids)


def test_kept_numbers_are_not_those_of_a_shorter_source() -> None:
    before = owners(numbered(500, path="a.jsonl").split(by="n", a=0.5, b=0.5))
    after = owners(numbered(1000, path="a.jsonl").split(by="n", a=0.5, b=0.5))
    assert len(before) == 500
    assert len(after) == 1000


def test_a_part_of_a_source_that_grew_stays_as_it_was() -> None:
    source = numbered(100)
    parts = pickle.loads(pickle.dumps(source.split(a=0.5, b=0.5)))
    parts[0].source.records.extend({"n": number} for number in range(100, 200))
    parts[0].source.records.extend({"n": number} for number in range(100, 200))
    assert sum(map(len, parts)) == 100


def test_a_part_of_a_source_that_lost_records_is_refused() -> None:
    parts = pickle.loads(pickle.dumps(numbered(100).split(a=0.5, b=0.5)))
    parts[0].source.records.pop()
    with pytest.raises(StaleIndexError, match="of 100 records and 99 are left"):
        len(parts[0])


def test_fingerprints_tell_divisions_apart_and_survive_appending() -> None:
    source = numbered(100)
    views = [
        *source.split(a=0.5, b=0.5),
        *source.split(a=0.5, b=0.5, seed=1),
        *source.split(a=0.5, b=0.5, by="n"),
        *source.split(a=0.4, b=0.6),
    ]
    assert len({view.fingerprint for view in views}) == len(views)
    longer, _ = numbered(200).split(c=0.5, d=0.5)
    assert longer.fingerprint == views[0].fingerprint


def test_blocks_of_a_part_are_those_of_the_source() -> None:
    source = numbered(100, block=10)
    part, _ = source.split(a=0.5, b=0.5)
    blocks = part.blocks.tolist()
    assert [blocks[0], blocks[-1]] == [0, len(part)]
    for start, stop in pairwise(blocks):
        assert len({number // 10 for number in part.ids[start:stop].tolist()}) == 1
    assert len(blocks) <= 11
