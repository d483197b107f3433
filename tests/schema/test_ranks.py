"""Vocabularies and statistics over several ranks."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penstock
from penstock.schema import Category, Number, Schema, Set
from tests.loading import gloo_programs
from tests.loading.ranks import Nursery

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [{"k": f"w{number % 13}", "x": number} for number in range(40)]


def schema() -> Schema:
    return Schema(Category("k", p_unavailable=0), Number("x"), Set("s", p_unavailable=0))


def loader(own: Schema, rank: int, records: Any = RECORDS) -> penstock.DataLoader:
    return penstock.DataLoader(records, own, batch_size=4, rank=rank, world_size=2, num_workers=0)


@pytest.mark.parametrize(("every", "early"), [(None, False), (2, False), (None, True)])
def test_ranks_come_to_the_same_labels_and_statistics(
    every: int | None,
    early: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    run = {"path": str(path), "loader": {"batch_size": 4}, "every": every, "early": early}
    with Nursery() as nursery:
        job = nursery.start(gloo_programs.learn, tmp_path / "job", 2, run)
        job.wait()
    first, second = job.rows()
    assert first[-1] == second[-1]
    assert sorted(first[-1]["labels"]) == sorted({record["k"] for record in RECORDS})
    assert [own["rank"] for own in first[-1]["state"]["ranks"]] == [0, 1]
    values = [record["x"] for record in RECORDS]
    assert first[-1]["count"] == len(RECORDS)
    assert first[-1]["mean"] == pytest.approx(np.mean(values))
    assert first[-1]["variance"] == pytest.approx(np.var(values))
    # Labels that a rank took for unknown ones are counted as such.
    known = sum(first[-1]["counts"]) - 14
    unseen = sum(row["unknown"] for row in second[:-1])
    assert known == len(RECORDS) - unseen
    unknown = [row["unknown"] for row in second[:-1]]
    assert not any(row["unknown"] for row in first[:-1])
    if every is None and not early:
        assert all(unknown)
    else:
        assert unknown[0]
        assert not unknown[-1]
    if early:  # Ranks meet behind the first batch.
        assert unknown[:2] == [4, 1]


def test_other_ranks_propose_labels_and_take_them_for_unknown() -> None:
    own = schema()
    batches = list(loader(own, 1))
    assert {int(one) for batch in batches for one in batch["record/k"].content} == {10_000}
    words = own.interprocess_encoding_context["record/k"]  # type: ignore[index]
    assert len(words) == 0
    assert words.drain_proposals()[:4] == ["w4", "w5", "w6", "w7"]
    assert words.drain_proposals() == []


def test_no_more_labels_are_proposed_than_find_room() -> None:
    own = Schema(Category("k", max_vocab_size=5, p_unavailable=0))
    list(loader(own, 1))
    words = own.interprocess_encoding_context["record/k"]  # type: ignore[index]
    assert words.drain_proposals() == ["w4", "w5", "w6", "w7", "w12"]


def test_a_second_pass_without_a_synchronization_warns() -> None:
    own = schema()
    run = loader(own, 1)
    list(run)
    with pytest.warns(UserWarning, match="13 labels"):
        list(run)


def test_as_many_ranks_continue_as_they_were_and_others_as_if_synchronized() -> None:
    schemas = [schema(), schema()]
    runs = [loader(own, rank) for rank, own in enumerate(schemas)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for own in runs:
            iterator = iter(own)
            for _ in range(3):
                next(iterator)
    states = [own.state_dict() for own in schemas]
    merged = json.loads(json.dumps(schemas[0].merged(states)))
    for rank in range(2):
        again = schema()
        again.configure_distributed(rank, 2)
        again.load_state_dict(merged)
        assert again.state_dict() == states[rank]
    alone = schema()
    alone.load_state_dict(merged)
    labels = states[0]["vocabularies"]["record/k"]
    assert alone.state_dict()["vocabularies"]["record/k"][: len(labels)] == labels
    assert len(alone.state_dict()["vocabularies"]["record/k"]) == 13
    assert alone.statistics["record/x"].count == 24  # type: ignore[index]
    # The state of rank 0, on rank 1: what rank 0 has not shared yet is not counted twice.
    other = schema()
    other.configure_distributed(1, 2)
    other.load_state_dict(states[0])
    assert other.statistics["record/x"].count == 0  # type: ignore[index]
    assert other.state_dict()["vocabularies"] == states[0]["vocabularies"]


def test_labels_come_in_the_order_of_ranks_then_of_their_sight() -> None:
    seen = [["b", "a"], ["d", "a", "c"], ["c", "e", "d", "f"]]
    states = []
    for rank, labels in enumerate(seen):
        own = Schema(Category("k", max_vocab_size=5, p_unavailable=0))
        own.configure_distributed(rank, 3)
        own.encode([{"k": label} for label in labels], "train")
        states.append(own.state_dict())
    alone = Schema(Category("k", max_vocab_size=5, p_unavailable=0))
    alone.load_state_dict(alone.merged(states))
    assert alone.state_dict()["vocabularies"]["record/k"] == ["b", "a", "d", "c", "e"]


def test_a_vocabulary_that_is_nearly_full_is_named() -> None:
    own = Schema(Category("k", max_vocab_size=20, p_unavailable=0))
    own.encode([{"k": number} for number in range(19)], "train")
    with pytest.warns(UserWarning, match="record/k: the vocabulary has 19 of at most 20"):
        own._learnt.report({"vocabularies": {"record/k": []}})  # noqa: SLF001 (asked at each synchronization)
