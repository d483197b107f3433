from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.order import Cursor, Mixture
from tests.order.order_contract import RecordOrderContract

if TYPE_CHECKING:
    from penstock.order._mixture import MixtureOrder

SEEDS = st.integers(-(2**70), 2**70)
STOPS = st.sampled_from(["first_exhausted", "all_exhausted", "repeat"])
NAMES = ["a", "b", "c", "d"]
GOLDEN_LENGTHS = [1659, 1658, 1656]
GOLDEN = [
    367, 372, 408, 920, 405, 653, 1090, 748, 1170, 497,
    1301, 758, 1102, 1063, 545, 113, 500, 297, 1201, 1210,
]  # fmt: skip
GOLDEN_LATER = [839, 1195, 1099, 925, 1300, 881, 524, 759]


class TestMixture(RecordOrderContract):
    MAKE = "order.Mixture({'a': 700, 'b': 90}, {'a': 0.8, 'b': 0.2}, seed=3).order(2)"
    LENGTH = 790


class TestRepeatedMixture(RecordOrderContract):
    MAKE = (
        "order.Mixture({'a': 300, 'b': 5}, [(0, {'a': 1}), (70, {'a': 2, 'b': 1})], "
        "stop='repeat').order()"
    )
    LENGTH = 305


class TestMixtureOfOne(RecordOrderContract):
    MAKE = "order.Mixture({'a': 100}, {'a': 1}).order()"
    LENGTH = 100


@st.composite
def mixtures(draw: st.DrawFn, stop: str | None = None) -> Mixture:
    """Draw a mixture of a few short sources, with or without phases."""
    names = NAMES[: draw(st.integers(1, 4))]
    lengths = {name: draw(st.integers(1, 300)) for name in names}
    weight = st.one_of(st.integers(1, 9), st.floats(0.2, 9))
    starts = [0, *sorted(draw(st.sets(st.integers(1, 400), max_size=3)))]
    phases = [(start, {name: draw(weight) for name in names}) for start in starts]
    for _, own in phases[:-1]:  # The last one has all, so that every epoch ends.
        for name in draw(st.sets(st.sampled_from(names), max_size=len(names) - 1)):
            del own[name]
    weights: Any = phases if len(phases) > 1 else phases[0][1]
    return Mixture(lengths, weights, stop=stop or draw(STOPS), seed=draw(SEEDS))


def source_numbers(order: MixtureOrder, start: int, stop: int) -> list[int]:
    found: list[int] = order.sources_at(np.arange(start, stop)).tolist()
    return found


def of_each(mixture: Mixture, order: MixtureOrder, count: int) -> list[list[int]]:
    """Return the records of each source, as numbers of their own, in the order they come."""
    ids, sources = order.positions(0, count), order.sources_at(np.arange(count))
    starts = np.cumsum([0, *mixture.lengths.values()])
    return [(ids[sources == s] - starts[s]).tolist() for s in range(len(mixture.names))]


@given(mixture=mixtures(), epoch=st.integers(0, 5))
def test_each_source_goes_through_its_records_pass_by_pass(mixture: Mixture, epoch: int) -> None:
    order = mixture.order(epoch)
    count = min(len(order), 1500)
    for length, records in zip(
        mixture.lengths.values(), of_each(mixture, order, count), strict=True
    ):
        for start in range(0, len(records), length):
            one = records[start : start + length]
            assert len(set(one)) == len(one)
        passes = [records[at : at + length] for at in range(0, len(records) - length + 1, length)]
        if length > 30:  # Another order each time.
            assert all(one != other for one, other in pairwise(passes))


@given(mixture=mixtures(), data=st.data())
def test_counts_are_those_of_the_positions_before(mixture: Mixture, data: st.DataObject) -> None:
    order = mixture.order()
    position = data.draw(st.integers(0, min(len(order), 1000)))
    sources = source_numbers(order, 0, position)
    assert order.counts(position) == [sources.count(s) for s in range(len(mixture.names))]


@given(mixture=mixtures("first_exhausted"), epoch=st.integers(0, 3))
def test_the_first_exhausted_source_ends_an_epoch_where_it_would_repeat(
    mixture: Mixture, epoch: int
) -> None:
    order = mixture.order(epoch)
    lengths = list(mixture.lengths.values())
    records = order.positions(0, len(order))
    assert len(set(records.tolist())) == len(records)
    endless = Mixture(mixture.lengths, _phases(mixture), "repeat", mixture.seed).order(epoch)
    (following,) = source_numbers(endless, len(order), len(order) + 1)
    assert order.counts(len(order))[following] == lengths[following]
    assert (endless.positions(0, len(order)) == records).all()


@given(mixture=mixtures("all_exhausted"), epoch=st.integers(0, 3))
def test_all_exhausted_sources_end_an_epoch_with_the_last_new_record(
    mixture: Mixture, epoch: int
) -> None:
    order = mixture.order(epoch)
    records = order.positions(0, len(order)).tolist()
    assert set(records) == set(range(sum(mixture.lengths.values())))
    assert records.count(records[-1]) == 1


def _phases(mixture: Mixture) -> Any:
    return [
        (start, {name: one for name, one in zip(mixture.names, own, strict=True) if one})
        for start, own in mixture.phases
    ]


@given(one=mixtures("repeat"), data=st.data())
def test_weights_do_not_change_the_order_of_a_source(one: Mixture, data: st.DataObject) -> None:
    weights = {name: data.draw(st.integers(1, 5)) for name in one.names}
    other = Mixture(one.lengths, weights, "repeat", one.seed)
    for first, second in zip(
        of_each(one, one.order(), 500), of_each(other, other.order(), 500), strict=True
    ):
        both = min(len(first), len(second))
        assert first[:both] == second[:both]


@given(first=mixtures(), epoch=st.integers(0, 2), data=st.data())
def test_other_weights_hold_from_a_place_on_and_each_source_goes_on_where_it_was(
    first: Mixture, epoch: int, data: st.DataObject
) -> None:
    """Two changes, at any places: what was before stays, and no source has a gap."""
    facts, length = first.facts(), sum(first.lengths.values())
    cursor = Cursor(fingerprint="", length=length, seed=7, epoch=epoch, kind="mixture", own=facts)
    for _ in range(2):
        before = cursor.order()
        position = data.draw(st.integers(cursor.position, min(len(before), cursor.position + 300)))
        weights = {name: data.draw(st.integers(1, 9)) for name in first.names}
        second = Mixture(first.lengths, weights, first.stop)
        known = json.loads(json.dumps(cursor.own))
        changed = second.continued(known, epoch, position)
        are_new = changed["weights"] != known["weights"]
        cursor = Cursor.from_dict(
            Cursor(
                fingerprint="", length=length, seed=7, epoch=epoch, kind="mixture", own=changed
            ).to_dict()
        ).at(position=position)
        after = cursor.order()
        assert (after.positions(0, position) == before.positions(0, position)).all()
        assert after.counts(position) == before.counts(position)  # type: ignore[attr-defined]
        # From there on the shares are the new ones, in whole blocks exactly. The same weights
        # change nothing, and their blocks began elsewhere.
        if are_new and len(after) >= position + 640:
            counts = zip(after.counts(position + 640), after.counts(position), strict=True)  # type: ignore[attr-defined]
            total = sum(weights.values())
            for (end, start), weight in zip(counts, weights.values(), strict=True):
                assert abs((end - start) - 640 * weight / total) < len(weights)
        for length_, records in zip(
            first.lengths.values(),
            of_each(first, after, min(len(after), position + 500)),  # type: ignore[arg-type]
            strict=True,
        ):
            for start in range(0, len(records), length_):
                one = records[start : start + length_]
                assert len(set(one)) == len(one)


def test_an_epoch_after_the_change_has_the_new_weights_from_its_beginning() -> None:
    first = Mixture({"a": 50, "b": 50}, {"a": 9, "b": 1})
    second = Mixture({"a": 50, "b": 50}, [(0, {"b": 1}), (10, {"a": 1, "b": 1})])
    facts = second.continued(first.facts(), epoch=1, position=5)
    make = {"length": 100, "seed": 0, **facts}
    cursor = Cursor(fingerprint="", length=100, kind="mixture", own=facts)
    assert (cursor.order().positions(0, 50) == first.positions(0, 50)).all()
    assert source_numbers(cursor.at(1).order(), 5, 10) == [1] * 5  # type: ignore[arg-type]
    assert source_numbers(cursor.at(2).order(), 0, 10) == [1] * 10  # type: ignore[arg-type]
    assert make["weights"] == [
        [0, 0, [[0, [9, 1]]]],
        [1, 5, [[0, [0, 1]], [10, [1, 1]]]],
    ]
    # The same weights again change nothing, and other ones at the same place replace these.
    assert second.continued(facts, epoch=1, position=30) == facts
    third = Mixture({"a": 50, "b": 50}, {"a": 2, "b": 1})
    assert third.continued(facts, 1, 5)["weights"] == [
        [0, 0, [[0, [9, 1]]]],
        [1, 5, [[0, [2, 1]]]],
    ]
    assert first.continued(facts, 1, 5) == first.facts()


@pytest.mark.parametrize("weights", [(0.7, 0.2, 0.1), (1, 1, 1), (0.9, 0.0999, 0.0001)])
def test_shares_hold_in_every_window(weights: tuple[float, ...]) -> None:
    given = dict(zip("abc", weights, strict=True))
    mixture = Mixture(dict.fromkeys("abc", 10**9), given, stop="repeat", seed=5)
    order = mixture.order()
    for begin in (0, 2**62 + 1_234_567):
        sources = order.sources_at(begin + np.arange(50_000))
        for number, weight in enumerate(weights):
            share = weight / sum(weights)
            came = np.concatenate([[0], np.cumsum(sources == number)])
            for window in (2_000, 10_000):
                counts = came[window:] - came[:-window]
                # Two cut blocks of 64, and rounding.
                bound = 2 * 64 * share * (1 - share) + 3
                assert np.abs(counts - window * share).max() <= bound


def test_any_position_is_as_cheap_as_the_first() -> None:
    mixture = Mixture({"a": 10**12, "b": 3}, {"a": 2**40, "b": 1}, stop="repeat")
    order = mixture.order()
    assert len(order) == 2**63 - 1
    end = order.positions(2**63 - 100, 2**63 - 1)
    assert 0 <= end.min() <= end.max() < 10**12 + 3
    # 2**40 to 1 is finer than weights are kept: the small share is not lost.
    assert order.counts(2**62)[1] == pytest.approx(2**32, rel=1e-6)
    assert sum(order.counts(2**62)) == 2**62


def test_positions_of_a_small_share_are_random() -> None:
    """A period would give one source to one rank: its places are spread over those of a step."""
    order = Mixture({"a": 10**6, "b": 10**6}, {"a": 7, "b": 1}, stop="repeat").order()
    places = np.flatnonzero(order.sources_at(np.arange(64_000)) == 1) % 8
    counts = np.bincount(places, minlength=8)
    assert ((counts - 1000) ** 2 / 1000).sum() < 24.3  # 99.9 % of chi-square with 7 degrees.


def test_records_that_are_skipped_never_come_and_sources_are_shorter_by_them() -> None:
    facts = Mixture({"a": 10, "b": 300}, {"a": 1, "b": 3}, stop="all_exhausted").facts()
    skip = ((2, 5), (9, 20), (309, 310))
    cursor = Cursor(fingerprint="", length=310, kind="mixture", own=facts, skip=skip)
    order = cursor.order()
    gone = {record for start, stop in skip for record in range(start, stop)}
    found = order.positions(0, len(order)).tolist()
    assert set(found) == set(range(310)) - gone
    with pytest.raises(OptionError, match="no record of the source 'a'"):
        Cursor(fingerprint="", length=310, kind="mixture", own=facts, skip=((0, 10),)).order()


def test_blocks_of_a_source_come_one_after_the_other() -> None:
    lengths = {"a": 1000, "b": 200_000}
    facts = Mixture(lengths, {"a": 1, "b": 9}, "repeat").facts(orders=["full", "block"])
    cursor = Cursor(fingerprint="", length=201_000, kind="mixture", own=facts)
    assert cursor.needs_blocks
    blocks = np.concatenate([[0], np.arange(1000, 201_001, 100)])
    order = cursor.order(blocks)
    found = order.positions(0, 20_000)
    own = found[found >= 1000] - 1000
    assert len(np.unique(own)) == len(own)
    assert len(np.unique(own // 100)) < 700  # Of 2,000 blocks.
    with pytest.raises(OptionError, match="needs blocks"):
        cursor.order().positions(0, 1)
    assert len(cursor.order()) == len(order)


def test_orders_are_those_of_every_release() -> None:
    mixture = Mixture(
        {"web": 1000, "code": 300, "tiny": 4},
        [(0, {"web": 0.7, "code": 0.3}), (70, {"web": 6, "code": 3, "tiny": 1})],
        stop="all_exhausted",
        seed=5,
    )
    assert [len(mixture.order(epoch)) for epoch in range(3)] == GOLDEN_LENGTHS
    assert mixture.positions(60, 80).tolist() == GOLDEN
    assert mixture.order(1).positions(10**3, 10**3 + 8).tolist() == GOLDEN_LATER
    assert mixture.facts()["weights"] == [[0, 0, [[0, [7, 3, 0]], [70, [6, 3, 1]]]]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": {}}, "no sources"),
        ({"sources": [3, 4]}, "give them by name"),
        ({"sources": {"a": 0, "b": 3}}, "'a' is empty"),
        ({"sources": {"a": "a.jsonl", "b": 3}}, "'a.jsonl' is a path"),
        ({"sources": {"a": 2.5, "b": 3}}, "has no length"),
        ({"sources": {"a": iter([]), "b": 3}}, "has no length"),
        ({"sources": {"a": -1, "b": 3}}, "has no length"),
        ({"sources": {"a": True, "b": 3}}, "has no length"),
        ({"sources": {1: 2, "b": 3}}, "1 is no name"),
        ({"weights": {"a": 1, "b": 1, "c": 1}}, "no source 'c'.*'a', 'b'"),
        ({"weights": {"a": 1}}, "'b' has none"),
        ({"weights": {"a": 1, "b": 0}}, "'b' has the weight 0"),
        ({"weights": {"a": 1, "b": -1}}, "'b' has the weight -1"),
        ({"weights": {"a": 1, "b": float("nan")}}, "'b' has the weight nan"),
        ({"weights": {"a": 1, "b": float("inf")}}, "'b' has the weight inf"),
        ({"weights": {"a": 1, "b": True}}, "'b' has the weight True"),
        ({"weights": {"a": 1, "b": "much"}}, "'b' has the weight 'much'"),
        ({"weights": [0.5, 0.5]}, "expected a weight for each source"),
        ({"weights": []}, "expected a weight for each source"),
        ({"weights": [(0, {"a": 1, "b": 1}), (9, {})]}, "expected a weight for each source"),
        ({"weights": [(1, {"a": 1, "b": 1})]}, r"positions \[1\]; expected 0 first"),
        ({"weights": [(0, {"a": 1}), (0, {"b": 1})]}, r"positions \[0, 0\]"),
        ({"weights": [(0, {"a": 1}), (-4, {"b": 1})]}, "position of a phase=-4"),
        ({"weights": [(0, {"a": 1}), (5, {"a": 1})]}, "'b' has none"),
        ({"weights": [(0, {"a": 1}), (5, {"b": 0})]}, "'b' has the weight 0"),
        ({"stop": "never"}, "stop='never'"),
        (
            {"weights": [(0, {"a": 1, "b": 1}), (4, {"a": 1})], "stop": "all_exhausted"},
            "the epoch never ends",
        ),
    ],
)
def test_what_cannot_be_mixed_is_refused(arguments: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {"sources": {"a": 10, "b": 20}, "weights": {"a": 1, "b": 1}}
    with pytest.raises(OptionError, match=message):
        Mixture(**{**usual, **arguments})


def test_a_source_that_is_used_up_may_be_missing_in_the_last_phase() -> None:
    phases = [(0, {"a": 1, "b": 1}), (400, {"a": 1})]
    mixture = Mixture({"a": 500, "b": 20}, phases, stop="all_exhausted")
    assert set(mixture.positions(0, len(mixture)).tolist()) == set(range(520))


def test_weights_are_taken_as_they_are_written() -> None:
    def shares(*weights: Any) -> tuple[int, ...]:
        names = NAMES[: len(weights)]
        given = dict(zip(names, weights, strict=True))
        return Mixture(dict.fromkeys(names, 9), given).phases[0][1]

    assert shares(0.7, 0.3) == (7, 3)
    assert shares(1 / 3, 2 / 3)[1] / 2 == pytest.approx(shares(1 / 3, 2 / 3)[0], rel=1e-8)
    assert shares(np.float32(0.5), np.int64(2)) == (1, 4)
    assert shares(10**30, 10**30, 10**30) == (1, 1, 1)
    assert shares(1e-300, 1.0)[0] == 1


STATE = Cursor(
    fingerprint="",
    length=30,
    kind="mixture",
    own=Mixture({"a": 10, "b": 20}, [(0, {"a": 1}), (5, {"b": 2})], "repeat").facts(),
).to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a"]},
        {"names": "ab"},
        {"names": [1, 2]},
        {"lengths": [10, 21]},
        {"lengths": [30, 0]},
        {"lengths": [10.0, 20]},
        {"lengths": None},
        {"orders": ["full", "sequential"]},
        {"orders": ["full"]},
        {"stop": "later"},
        {"weights": []},
        {"weights": 7},
        {"weights": [[0, 0]]},
        {"weights": [[0, 0, []]]},
        {"weights": [[0, 1, [[0, [1, 1]]]]]},
        {"weights": [[0, 0, [[1, [1, 1]]]]]},
        {"weights": [[0, 0, [[0, [1, 1]], [0, [1, 1]]]]]},
        {"weights": [[0, 0, [[0, [1]]]]]},
        {"weights": [[0, 0, [[0, [0, 0]]]]]},
        {"weights": [[0, 0, [[0, [2**31, 1]]]]]},
        {"weights": [[0, 0, [[0, [-1, 2]]]]]},
        {"weights": [[0, 0, [[0, [True, 2]]]]]},
        {"weights": [[0, 0, [[0, ["1", 2]]]]]},
        {"weights": [[0, 0, [[0, [1, 1]]]], [0, 0, [[0, [1, 1]]]]]},
        {"weights": [[0, 0, [[0, [1, 1]]]], [2**64, 0, [[0, [1, 1]]]]]},
    ],
)
def test_a_state_that_no_mixture_has_is_refused(change: dict[str, Any]) -> None:
    order: dict[str, Any] = STATE["order"]  # type: ignore[assignment]
    with pytest.raises(OptionError, match="state: order"):
        Cursor.from_dict({**STATE, "order": {**order, **change}}).order()


def test_parameters_that_a_kind_of_order_does_not_have_are_named() -> None:
    order: dict[str, Any] = STATE["order"]  # type: ignore[assignment]
    with pytest.raises(OptionError, match=r"unknown order\.temperature"):
        Cursor.from_dict({**STATE, "order": {**order, "temperature": 1}})
    with pytest.raises(OptionError, match=r"missing order\.stop"):
        Cursor.from_dict({**STATE, "order": {k: v for k, v in order.items() if k != "stop"}})
    full = {"kind": "full", "version": 1, "lanes": 1}
    with pytest.raises(OptionError, match=r"unknown order\.names"):
        Cursor.from_dict({**STATE, "order": {**full, "names": ["a"]}})
    with pytest.raises(OptionError, match="position"):
        Cursor.from_dict({**STATE, "position": 2**63})


def test_only_weights_may_change_during_a_run() -> None:
    first = Mixture({"a": 10, "b": 20}, {"a": 1, "b": 1})
    with pytest.raises(OptionError, match=r"names \['a', 'b'\], and this one has \['a', 'c'\]"):
        Mixture({"a": 10, "c": 20}, {"a": 1, "c": 1}).continued(first.facts(), 0, 3)
    with pytest.raises(OptionError, match="stop 'first_exhausted'"):
        Mixture({"a": 10, "b": 20}, {"a": 1, "b": 1}, "repeat").continued(first.facts(), 0, 3)


@given(mixture=mixtures(), epochs=st.integers(0, 3), data=st.data())
def test_a_report_counts_all_that_came(mixture: Mixture, epochs: int, data: st.DataObject) -> None:
    epochs = 0 if mixture.stop == "repeat" else epochs
    expected = np.zeros(len(mixture.names), np.int64)
    for epoch in range(epochs):
        order = mixture.order(epoch)
        sources = order.sources_at(np.arange(len(order)))
        expected += np.bincount(sources, minlength=len(expected))
    order = mixture.order(epochs)
    position = data.draw(st.integers(0, min(len(order), 500)))
    if position:
        sources = order.sources_at(np.arange(position))
        expected += np.bincount(sources, minlength=len(expected))
    state = Cursor(
        fingerprint="",
        length=sum(mixture.lengths.values()),
        seed=mixture.seed or 0,
        epoch=epochs,
        kind="mixture",
        own=mixture.facts(),
        position=position,
    ).to_dict()
    seen = mixture.report(state)
    assert [one.records for one in seen.values()] == expected.tolist()
    assert sum(one.share for one in seen.values()) == pytest.approx(float(bool(expected.sum())))
    for name, one in seen.items():
        assert one.epochs == one.records / mixture.lengths[name]


def test_a_report_of_another_run_is_refused() -> None:
    state = Cursor(fingerprint="", length=30).to_dict()
    with pytest.raises(OptionError, match="another run"):
        Mixture({"a": 10, "b": 20}, {"a": 1, "b": 1}).report(state)
