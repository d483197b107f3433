# ruff: noqa: FBT001, PLR0913, PLR0917, SLF001 (what may differ; lanes without processes)
"""A stream continues with the very next record: at any cut, on any ranks and workers."""

from __future__ import annotations

import json
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import DataLoader
from tests.loading.stream_samples import DrawnUnits, all_of, flow, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZES = st.lists(st.integers(0, 9), max_size=6)
CHANCE = st.randoms(use_true_random=False)


def loader(stream: Any, **options: Any) -> DataLoader:
    defaults: dict[str, Any] = {"encode": {"n": "int64"}, "batch_size": 3, "seed": 5}
    return DataLoader(stream, **{"num_workers": 0, **defaults, **options})


def saved(found: DataLoader) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(found.state_dict()))
    return state


def in_lanes(stream: Any, lanes: int, **options: Any) -> DataLoader:
    """Return a loader that reads as worker processes would, but in this thread."""
    found = loader(stream, **options)
    found._feed._workers = lanes  # type: ignore[attr-defined]
    return found


@given(
    sizes=SIZES,
    shuffle=st.booleans(),
    buffer=st.sampled_from([1, 2, 5, 100]),
    mapped=st.booleans(),
    chunk=st.sampled_from([0, 1, 4]),
    lanes=st.integers(1, 3),
    epochs=st.integers(1, 2),
    drop_last=st.booleans(),
)
def test_a_run_goes_on_at_any_batch(
    sizes: list[int],
    shuffle: bool,
    buffer: int,
    mapped: bool,
    chunk: int,
    lanes: int,
    epochs: int,
    drop_last: bool,
) -> None:
    stream = flow(sizes, chunk=chunk, mapped=mapped, buffer=buffer)
    options: dict[str, Any] = {"shuffle": shuffle, "epochs": epochs, "drop_last": drop_last}
    first = in_lanes(stream, lanes, **options)
    whole, states = [], [saved(first)]
    for batch in first:
        whole.append(rows(batch))
        states.append(saved(first))
    found = Counter(number for batch in whole for number in batch)
    expected = Counter(all_of(sizes, mapped=mapped) * epochs)
    assert found <= expected if drop_last else found == expected
    if not shuffle and lanes == 1 and not drop_last:
        assert [one for batch in whole for one in batch] == all_of(sizes, mapped=mapped) * epochs

    def resumed(state: dict[str, Any]) -> DataLoader:
        again = in_lanes(stream, lanes, **options)
        again.load_state_dict(state)
        return again

    for cut, state in enumerate(states):
        assert [rows(batch) for batch in resumed(state)] == whole[cut:]
    for cut, state in enumerate(states[:-2]):
        again = resumed(state)
        run = iter(again)
        assert [rows(next(run)), rows(next(run))] == whole[cut : cut + 2]
        assert [rows(batch) for batch in resumed(saved(again))] == whole[cut + 2 :]


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    count=st.integers(0, 5),
    buffer=st.sampled_from([1, 5]),
    mapped=st.booleans(),
    lanes=st.integers(1, 2),
    epochs=st.integers(1, 3),
)
def test_units_drawn_anew_for_each_epoch_go_on_at_any_batch(
    sizes: list[int], count: int, buffer: int, mapped: bool, lanes: int, epochs: int
) -> None:
    stream = flow(sizes, drawn=count, mapped=mapped, buffer=buffer)
    first = in_lanes(stream, lanes, shuffle=True, epochs=epochs)
    whole, states = [], [saved(first)]
    for batch in first:
        whole.append(rows(batch))
        states.append(saved(first))
    units = [unit for epoch in range(epochs) for unit in DrawnUnits(len(sizes), count)(epoch)]
    expected = Counter(all_of(sizes, mapped=mapped, units=units))
    assert Counter(number for batch in whole for number in batch) == expected
    for cut, state in enumerate(states):
        again = in_lanes(stream, lanes, shuffle=True, epochs=epochs)
        again.load_state_dict(state)
        assert [rows(batch) for batch in again] == whole[cut:]


def _through(
    stream: Any, state: dict[str, Any] | None, world: int, lanes: int, most: int, **options: Any
) -> tuple[list[int], dict[str, Any]]:
    """Return what all ranks get in at most so many steps, and their state."""
    seen, states = [], []
    for rank in range(world):
        one = in_lanes(stream, lanes, rank=rank, world_size=world, **options)
        if state is not None:
            one.load_state_dict(state)
        states.append(saved(one))
        for _, batch in zip(range(most), one, strict=False):
            seen += rows(batch)
            states[-1] = saved(one)
    return seen, dict(one._feed.joined(states))


@given(
    sizes=SIZES,
    shuffle=st.booleans(),
    buffer=st.sampled_from([1, 3, 100]),
    mapped=st.booleans(),
    chunk=st.sampled_from([0, 3]),
    layouts=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=3
    ),
)
def test_other_ranks_and_workers_lose_nothing_and_read_nothing_twice(
    sizes: list[int],
    shuffle: bool,
    buffer: int,
    mapped: bool,
    chunk: int,
    layouts: Sequence[tuple[int, int, int]],
) -> None:
    stream = flow(sizes, chunk=chunk, mapped=mapped, buffer=buffer)
    seen: list[int] = []
    state = None
    for world, lanes, most in [*layouts, (1, 1, 10_000)]:
        got, state = _through(stream, state, world, lanes, most, shuffle=shuffle, batch_size=2)
        seen += got
    assert Counter(seen) == Counter(all_of(sizes, mapped=mapped))


LAYOUTS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@given(
    sizes=st.lists(st.integers(0, 9), max_size=9),
    buffer=st.sampled_from([2, 5, 100]),
    mapped=st.booleans(),
    before=LAYOUTS,
    most=st.integers(0, 4),
    now=LAYOUTS,
)
def test_a_run_on_other_ranks_and_workers_goes_on_exactly_from_then_on(
    sizes: list[int],
    buffer: int,
    mapped: bool,
    before: tuple[int, int],
    most: int,
    now: tuple[int, int],
) -> None:
    stream = flow(sizes, mapped=mapped, buffer=buffer)
    _, state = _through(stream, None, *before, most, shuffle=True)

    def resumed(state: dict[str, Any]) -> list[DataLoader]:
        world, lanes = now
        ranks = [in_lanes(stream, lanes, rank=rank, world_size=world) for rank in range(world)]
        for one in ranks:
            one.load_state_dict(state)
        return ranks

    ranks = resumed(state)
    steps, states, parts = [], [state], [saved(one) for one in ranks]
    for step in zip_longest(*ranks):
        steps.append([None if batch is None else rows(batch) for batch in step])
        for rank, batch in enumerate(step):
            parts[rank] = parts[rank] if batch is None else saved(ranks[rank])
        states.append(dict(ranks[0]._feed.joined(parts)))
        assert "part" not in states[-1]
    for cut, one in enumerate(states):
        again = [[rows(batch) for batch in rank] for rank in resumed(one)]
        assert [list(step) for step in zip_longest(*again)] == steps[cut:]
