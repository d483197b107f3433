"""Two ranks of Lightning share files: every record once, in equally many steps, and go on."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.launching import run_by_lightning
from tests.lightning.streaming_files import records, write
from tests.lightning.streaming_runs import fit

if TYPE_CHECKING:
    from pathlib import Path

# Lightning 2.6 uses a class that torch has marked as old.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used"),
]

SIZES = (2, 31, 3, 1, 9)
RECORDS = sum(SIZES)
VALIDATED: dict[str, Any] = {"validate": r"/\d\.jsonl$"}
ONCE: dict[str, Any] = {"replacement": False}
SHORT: dict[str, Any] = {**ONCE, "trainer": {"max_epochs": 1}}
SHUFFLED: dict[str, Any] = {
    **ONCE,
    "sharding": "chunk",
    "chunk_batch_size": 3,
    "observation_buffer_size": 8,
    "file_buffer_size": 3,
    "sample_rate": 0.9,
}
PLAN: dict[str, dict[str, Any]] = {
    "by files": {**ONCE, **VALIDATED, "saves": "saved"},
    "by chunks": {**SHORT, "sharding": "chunk", "chunk_batch_size": 3, "num_workers": 2},
    "by records": {**SHORT, "sharding": "record", "num_workers": 1},
    "drawn": {"saves": "drawn"},
    "drawn from": {"checkpoint": "drawn/step=2.ckpt"},
    "shuffled": {**SHUFFLED, "saves": "shuffled"},
    "shuffled from": {**SHUFFLED, "checkpoint": "shuffled/step=4.ckpt"},
    "listed by the first": {**SHORT, "root": "files-{rank}"},
    "one file": {**SHORT, "train": "/1.jsonl"},
    "dropped": {**SHORT, "engine": {"equalize": "drop"}},
    "predicted": {"predict": r"/\d\.jsonl$"},
    "no match": {"train": "nothing"},
}

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of very different sizes, and for each rank a place where rank 1 has one more."""
    folder = tmp_path_factory.mktemp("ranks")
    for name in ("files", "files-0", "files-1"):
        start = 0
        for at, count in enumerate(SIZES):
            write(folder / name / f"{at}.jsonl", records(start, count))
            start += count
    write(folder / "files-1" / "9.jsonl", records(900))
    return folder


@pytest.fixture(scope="module")
def ranks(place: Path) -> list[Found]:
    """What each of two ranks found, which Lightning itself started."""
    found = run_by_lightning("streaming_program", place / "two", PLAN)
    assert len(found) == 2
    return found


def seen(ranks: list[Found], name: str, what: str = "trained", epoch: int = 0) -> list[list[int]]:
    """Return the records that count, by rank."""
    return [[*chain(*(one[1] for one in rank[name][what] if one[0] == epoch))] for rank in ranks]


def steps(ranks: list[Found], name: str, what: str = "trained") -> list[int]:
    return [len(rank[name][what]) for rank in ranks]


@pytest.mark.parametrize("name", ["by files", "by chunks", "by records", "listed by the first"])
def test_every_epoch_has_every_record_once_in_equally_many_steps(
    name: str, ranks: list[Found]
) -> None:
    for epoch in (0, 1) if name == "by files" else (0,):
        shares = seen(ranks, name, epoch=epoch)
        assert sorted(chain(*shares)) == list(range(RECORDS))
        assert all(shares)
    assert len({*steps(ranks, name)}) == 1


def test_every_validation_has_every_record_once(ranks: list[Found]) -> None:
    for epoch in (0, 1):
        shares = seen(ranks, "by files", "validated", epoch)
        assert sorted(chain(*shares)) == list(range(RECORDS))
    assert len({*steps(ranks, "by files", "validated")}) == 1


def test_ranks_draw_equally_many_records_and_others(ranks: list[Found]) -> None:
    for epoch in (0, 1):
        one, other = seen(ranks, "drawn", epoch=epoch)
        assert [len(one), len(other)] == [RECORDS // 2, RECORDS // 2]
        assert one != other
    assert seen(ranks, "drawn", epoch=0) != seen(ranks, "drawn", epoch=1)


@pytest.mark.parametrize(("name", "step"), [("drawn", 2), ("shuffled", 4)])
def test_every_rank_goes_on_as_if_it_had_never_stopped(
    name: str, step: int, ranks: list[Found]
) -> None:
    for rank in ranks:
        assert rank[f"{name} from"]["trained"] == rank[name]["trained"][step:]


def test_one_process_goes_on_with_what_two_began(ranks: list[Found], place: Path) -> None:
    options = {**ONCE, **VALIDATED}
    net = fit(place / "files", checkpoint=place / "two" / "saved" / "step=3.ckpt", **options)
    before = [one for rank in ranks for one in rank["by files"]["trained"][:3]]
    for epoch in (0, 1):
        own = chain(*(ids for at, ids, _ in before + net.trained if at == epoch))
        assert sorted(own) == list(range(RECORDS))


def test_a_rank_without_a_file_keeps_step_and_is_warned_of(ranks: list[Found]) -> None:
    assert seen(ranks, "one file") == [list(range(2, 33)), []]
    assert steps(ranks, "one file") == [8, 8]
    assert all(
        any("Give sharding='chunk'" in one for one in rank["one file"]["warned"]) for rank in ranks
    )


def test_drop_ends_all_ranks_with_the_first(ranks: list[Found]) -> None:
    assert steps(ranks, "dropped") == [4, 4]
    assert all(len(ids) <= RECORDS for ids in seen(ranks, "dropped"))


def test_each_record_is_predicted_once(ranks: list[Found]) -> None:
    predicted = [[*chain(*rank["predicted"]["predicted"])] for rank in ranks]
    assert sorted(chain(*predicted)) == list(range(RECORDS))
    assert all(predicted)


def test_an_error_of_the_first_rank_is_raised_on_all(ranks: list[Found]) -> None:
    for rank in ranks:
        assert rank["no match"]["error"].startswith("OptionError: no file below")
