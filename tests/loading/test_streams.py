# ruff: noqa: ARG001, ARG005 (what `read` takes)
"""Records that flow go through the loader: every engine, every recipe, every ending."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import threading
import time
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock import DataLoader, Tokens
from penstock.batch import Batch, FieldEncoder
from penstock.errors import (
    BadRecordsError,
    ChangedSourceError,
    OptionError,
    SchemaMismatchError,
    StallError,
)
from penstock.order import CostPlan
from tests.loading.iterable_samples import Drawn, Pairs, Sharded
from tests.loading.stream_samples import (
    UNIT,
    DrawnUnits,
    Noting,
    Reading,
    all_of,
    counting,
    flow,
    rows,
    several,
)
from tests.loading.toy_encoders import GrowingVocabulary, HashedMask
from tests.loading.toy_plan import ThreeFive

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZES = [7, 0, 4, 1, 12, 3]
METHODS = ("fork", "forkserver", "spawn")


def loader(stream: Any = None, encode: Any = None, **options: Any) -> DataLoader:
    stream = flow(SIZES, buffer=5) if stream is None else stream
    encode = {"n": "int64"} if encode is None else encode
    return DataLoader(stream, encode, **{"batch_size": 3, **options})


def values(found: DataLoader) -> list[list[int]]:
    return [rows(batch) for batch in found]


# What comes when.


def test_units_come_in_order_and_batches_reach_over_their_ends() -> None:
    whole = all_of(SIZES)
    assert values(loader()) == [whole[at : at + 3] for at in range(0, len(whole), 3)]


def test_a_shuffle_permutes_units_and_draws_from_the_buffer() -> None:
    sizes = [50] * 40
    found = [n for batch in loader(flow(sizes, buffer=100), shuffle=True) for n in rows(batch)]
    order = [n // UNIT for n in found]
    assert sorted(found) == all_of(sizes)
    assert [*dict.fromkeys(order)] != [*range(40)]
    # A buffer holds two units: records move as far as that, and no further.
    read = [UNIT * unit + at for unit in dict.fromkeys(order) for at in range(50)]
    moved = np.array([read.index(n) - at for at, n in enumerate(found)])
    assert 20 < np.abs(moved).mean() < 50
    assert np.abs(moved).max() <= 150
    stay = sum(b - a == 1 for a, b in pairwise(found))
    assert stay < 0.05 * len(found)


def test_a_buffer_of_all_records_shuffles_all_of_them() -> None:
    firsts = {values(loader(flow([60]), shuffle=True, seed=seed))[0][0] for seed in range(60)}
    assert len(firsts) > 30
    assert max(firsts) > 50


def test_a_buffer_draws_every_record_equally_often() -> None:
    run = loader(flow([16]), shuffle=True, seed=1, epochs=800, batch_size=16, num_workers=0)
    found = np.array([rows(batch) for batch in run])
    for place in (0, 7, 15):
        counts = np.bincount(found[:, place], minlength=16)
        assert ((counts - 50) ** 2 / 50).sum() < 37.7  # 99.9 % for 15 degrees of freedom.


def test_a_buffer_of_one_record_permutes_units_and_keeps_the_order_in_them() -> None:
    stream = flow([9] * 8, mapped=True, buffer=1)
    found = [n for batch in loader(stream, shuffle=True) for n in rows(batch)]
    units = [*dict.fromkeys(n // (10 * UNIT) for n in found)]
    assert units != sorted(units)
    whole = all_of([9] * 8, mapped=True)
    assert found == sorted(whole, key=lambda n: units.index(n // (10 * UNIT)))


@pytest.mark.parametrize("method", METHODS)
def test_worker_processes_read_units_of_their_own_in_turn(method: str) -> None:
    options = {"num_workers": 2, "multiprocessing_context": method, "epochs": 2}
    found = values(loader(flow([4, 7, 3, 2, 1]), shuffle=False, **options))
    first = all_of([4, 0, 3, 0, 1])
    second = all_of([0, 7, 0, 2])
    lanes = [[lane[at : at + 3] for at in range(0, len(lane), 3)] for lane in (first, second)]
    assert found == [batch for pair in zip(*lanes, strict=True) for batch in pair] * 2


def test_more_workers_than_units_are_allowed() -> None:
    assert sorted(sum(values(loader(num_workers=8)), [])) == all_of(SIZES)  # noqa: RUF017


def test_record_numbers_are_those_of_units_and_stay_the_same() -> None:
    plain = [batch.ids.tolist() for batch in loader()]
    assert sum(plain, []) == [(n // UNIT << 32) + n % UNIT for n in all_of(SIZES)]  # noqa: RUF017
    mapped = {}
    for options in ({}, {"shuffle": True, "num_workers": 2}):
        batches = [*loader(flow(SIZES, mapped=True), **options)]
        ids = [number for batch in batches for number in batch.ids.tolist()]
        assert len(set(ids)) == len(ids)
        mapped[len(mapped)] = dict(zip(ids, [n for b in batches for n in rows(b)], strict=True))
    assert mapped[0] == mapped[1]


def test_positions_beyond_numbers_have_numbers_of_their_own() -> None:
    def read(unit: int, start: int = 0) -> Iterator[dict[str, int]]:
        yield from ({"n": number} for number in range(start, (1 << 33) + 3))

    late = loader(penstock.stream([0], read), num_workers=0)
    state: Any = late.state_dict()
    state["done"]["parts"], state["order"]["next"] = {"0": [[0, 1 << 33]]}, [0]
    late.load_state_dict(state)
    (batch,) = late
    assert batch["n"].tolist() == [(1 << 33) + at for at in range(3)]
    assert len(set(batch.ids.tolist())) == 3
    assert int(batch.ids.min()) >= 1 << 62


def test_a_unit_is_opened_once_and_read_forward(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for workers in (0, "auto", 2):
        log.write_text("")
        found = loader(penstock.stream(range(3), Noting(str(log))), num_workers=workers)
        assert len([*found]) in (100, 101)
        assert sorted(log.read_text().split("\n"))[1:] == [
            *(f"close {unit}" for unit in range(3)),
            *(f"open {unit} 0" for unit in range(3)),
        ]


def test_a_resume_reads_from_the_first_record_that_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = loader(penstock.stream(range(3), Noting(str(log))), num_workers=0)
    for _ in islice(first, 40):
        pass
    log.write_text("")
    again = loader(penstock.stream(range(3), Noting(str(log))), num_workers=0)
    again.load_state_dict(first.state_dict())
    assert rows(next(iter(again))) == [UNIT + 20, UNIT + 21, UNIT + 22]
    assert log.read_text().startswith("open 1 20\n")


# Every kind of batch.


def test_every_recipe_takes_records_and_batches_of_arrow() -> None:
    for chunk in (0, 4):
        stream = flow(SIZES, chunk=chunk)
        whole = all_of(SIZES)
        expected = [whole[at : at + 3] for at in range(0, len(whole), 3)]
        plain = DataLoader(stream, batch_size=3)
        assert [[record["n"] for record in batch] for batch in plain] == expected
        arrow = DataLoader(stream, batch_size=3, output="arrow")
        assert [batch["n"].to_pylist() for batch in arrow] == expected
        called = loader(stream, lambda columns: {"n": columns["n"].to_numpy()})
        assert [batch["n"].tolist() for batch in called] == expected
        collated = DataLoader(stream, batch_size=3, collate=lambda part: [one["n"] for one in part])
        assert [*collated] == expected
        masked = [batch["target"].tolist() for batch in loader(stream, HashedMask())]
        assert masked == expected


def test_fields_of_every_kind_are_encoded() -> None:
    def read(unit: int, start: int = 0) -> Iterator[dict[str, Any]]:
        for n in range(start, 4):
            yield {"n": n, "user": {"age": n}, "tags": [n] * n, "city": "ab"[n % 2], "any": [{}]}

    types = {"user.age": "float32", "tags": "list<int64>", "any": "json", "city": "category"}
    encoder = FieldEncoder(types, {"city": ["a", "b"]})
    (batch,) = loader(penstock.stream([0], read), encoder, batch_size=8)
    assert batch["user.age"].tolist() == [0, 1, 2, 3]
    assert batch["tags"].lengths.tolist() == [0, 1, 2, 3]
    assert batch["any"] == [[{}]] * 4
    assert batch["city"].codes.tolist() == [0, 1, 0, 1]
    with pytest.raises(OptionError, match="'city' has the values of all records"):
        loader(penstock.stream([0], read), types)


def test_a_column_of_tokens_is_encoded() -> None:
    def read(unit: int, start: int = 0) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"input_ids": [[1, 2, 3, 4, 5]] * 4}).slice(start)

    (batch,) = loader(penstock.stream([0], read), Tokens(4, field="input_ids"), batch_size=4)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4]] * 4


def test_an_encoder_that_learns_goes_on_with_its_state() -> None:
    whole = [batch["code"].tolist() for batch in loader(None, GrowingVocabulary())]
    first = loader(None, GrowingVocabulary())
    begun = [batch["code"].tolist() for batch in islice(first, 4)]
    again = loader(None, GrowingVocabulary(), num_workers=0)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + [batch["code"].tolist() for batch in again] == whole


def test_batches_of_arrow_may_change_their_columns_and_come_beside_dicts() -> None:
    def read(unit: int, start: int = 0) -> Iterator[Any]:
        yield pa.record_batch({"n": [0, 1]})
        yield pa.record_batch({"n": pa.array([], pa.int64())})
        yield {"n": 2, "late": "x"}
        yield pa.table({"n": [3, 4], "late": pa.array(["y", "z"], pa.string_view())})
        yield pa.record_batch({"n": pa.array([5], pa.int8())})

    for shuffle in (False, True):
        types = {"n": "int64", "late": "string?"}
        found = loader(penstock.stream([0], read), types, shuffle=shuffle)
        pairs = [pair for batch in found for pair in zip(rows(batch), batch["late"], strict=True)]
        late = [None, None, "x", "y", "z", None]
        assert sorted(pairs) == [*enumerate(late)]


# Generator functions and datasets of torch.


def test_a_generator_function_is_one_unit() -> None:
    assert values(loader(counting)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert values(loader(partial(counting), num_workers=3)) == values(loader(counting))
    first = loader(counting)
    state = [first.state_dict() for _ in islice(first, 2)][-1]
    again = loader(counting)
    again.load_state_dict(state)
    assert values(again) == [[6, 7, 8], [9]]
    with pytest.raises(OptionError, match=r"2 ranks: give penstock.stream"):
        next(iter(loader(counting, rank=0, world_size=2)))


def test_an_iterator_that_is_used_up_is_refused() -> None:
    for used_up in (counting(), map(str, range(3))):
        with pytest.raises(OptionError, match="give the function"):
            loader(used_up)


def test_a_reader_of_arrow_is_a_source_as_before() -> None:
    assert values(loader(pa.table({"n": [1, 2, 3, 4]}).to_reader())) == [[1, 2, 3], [4]]


@pytest.mark.parametrize("method", METHODS)
def test_a_torch_dataset_shards_itself_over_workers(method: str) -> None:
    dataset = Sharded(17)
    whole = loader(dataset, num_workers=0)
    assert [*next(iter(whole)).ids] == [0, 1, 2]
    options = {"num_workers": 2, "multiprocessing_context": method}
    found = loader(dataset, {"n": "int64", "workers": "int64"}, **options)
    batches = [(rows(batch), {*batch["workers"].tolist()}) for batch in found]
    assert [n for batch, _ in batches for n in batch][:9] == [0, 2, 4, 1, 3, 5, 6, 8, 10]
    assert sorted(n for batch, _ in batches for n in batch) == [*range(17)]
    assert {count for _, counts in batches for count in counts} == {2}


def test_a_torch_dataset_goes_on_with_as_many_workers_and_refuses_others() -> None:
    first = loader(Sharded(17), num_workers=2)
    whole = [rows(batch) for batch in first]
    first.set_epoch(0)
    state = [first.state_dict() for _ in islice(first, 3)][-1]
    again = loader(Sharded(17), num_workers=2)
    again.load_state_dict(state)
    assert values(again) == whole[3:]
    other = loader(Sharded(17), num_workers=3)
    other.load_state_dict(state)
    with pytest.raises(OptionError, match="of 2 ranks × workers, and there are 3"):
        next(iter(other))


def test_a_torch_dataset_draws_in_each_worker_and_draws_again_after_a_resume() -> None:
    first = loader(Drawn(), num_workers=2, seed=4)
    whole, states = [], []
    for batch in first:
        whole.append(rows(batch))
        states.append(first.state_dict())
    assert len({n for batch in whole for n in batch}) == 12
    again = loader(Drawn(), num_workers=2)
    again.load_state_dict(states[1])
    assert values(again) == whole[2:]


def test_a_torch_dataset_may_yield_anything() -> None:
    plain = DataLoader(Pairs(), batch_size=2, collate=list)
    assert [*plain] == [[(0, 0), (1, 1)], [(2, 4), (3, 9)], [(4, 16)]]
    with pytest.raises(SchemaMismatchError, match="only dicts have columns"):
        next(iter(loader(Pairs())))


# How it ends.


@pytest.mark.parametrize("workers", [0, "auto", 2])
@pytest.mark.parametrize("how", ["break", "error"])
def test_generators_are_closed(workers: Any, how: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = iter(loader(penstock.stream(range(2), Noting(str(log), 10**6)), num_workers=workers))
    next(run)
    if how == "error":
        with pytest.raises(KeyError):
            run.throw(KeyError)  # type: ignore[attr-defined]
    else:
        run.close()  # type: ignore[attr-defined]
    opened, closed = (log.read_text().count(what) for what in ("open", "close"))
    assert opened == closed > 0


@pytest.mark.parametrize("workers", ["auto", 2])
def test_a_loop_can_be_left_while_a_unit_waits_for_records(workers: Any) -> None:
    is_over: list[bool] = []  # An event would not reach worker processes.

    def read(unit: int, start: int = 0) -> Iterator[dict[str, int]]:
        for number in range(start, 3):
            yield {"n": number}
        while not is_over:
            time.sleep(0.05)

    run = iter(loader(penstock.stream(range(2), read), num_workers=workers))
    assert rows(next(run)) == [0, 1, 2]
    run.close()  # type: ignore[attr-defined]
    is_over.append(True)
    assert not multiprocessing.active_children()


def test_a_stall_names_the_unit() -> None:
    released = threading.Event()

    def read(unit: str, start: int = 0) -> Iterator[dict[str, int]]:
        yield {"n": 1}
        released.wait(20)

    stalled = loader(penstock.stream(["slow.log"], read, name="logs"), stall_timeout=0.2)
    with pytest.raises(StallError, match=r"unit 0, slow.log"):
        next(iter(stalled))
    released.set()


def test_an_empty_stream_has_no_batches() -> None:
    assert values(loader(penstock.stream([], Reading([])))) == []
    assert values(loader(flow([0, 0]), epochs=None, num_workers=2)) == []
    dropped = flow([5]).map(lambda _record: [])
    assert values(loader(dropped)) == []


def test_epochs_without_end_go_on() -> None:
    assert len([*islice(loader(flow([4]), epochs=None, batch_size=2), 9)]) == 9


# What is known of it.


def test_a_length_is_known_where_it_is_given() -> None:
    with pytest.raises(TypeError, match="length of a stream"):
        len(loader())
    given = flow(SIZES, length=27)
    assert len(loader(given)) == 9
    assert len(loader(given, batch_size=2, rank=0, world_size=3)) == 5
    assert len(loader(given, batch_size=2, rank=0, world_size=3, drop_last=True, epochs=2)) == 8
    with pytest.raises(TypeError, match="length of a stream"):
        len(loader(given.map(several)))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("workers", "world_size"), [(0, 1), (1, 1), (2, 1), (3, 2), ("auto", 3)])
def test_a_length_counts_the_short_batch_of_each_worker(
    workers: Any,
    world_size: int,
    drop_last: bool,  # noqa: FBT001
) -> None:
    for rank in range(world_size):
        given = loader(
            flow([10] * 7, length=70), batch_size=4, num_workers=workers,
            rank=rank, world_size=world_size, drop_last=drop_last, epochs=2, shuffle=True,
        )  # fmt: skip
        assert len(given) == len([*given])


def test_explain_says_how_it_is_read() -> None:
    said: Any = loader(flow(SIZES, name="logs"), shuffle=True, num_workers=2).explain()
    assert "Stream 'logs' of 6 units" in said["source"]
    assert "buffer of 10,000" in said["order"]
    assert "each of 2 worker processes" in said["reading"]
    one: Any = loader().explain()
    assert "in order" in one["order"]
    assert "one unit at a time" in one["reading"]
    with pytest.raises(OptionError, match="known when they are read"):
        loader().explain(step=3)
    assert repr(loader()) == "<DataLoader of Stream of 6 units, batch_size=3, in order>"


def test_a_state_is_small() -> None:
    big = loader(flow([5000] * 40, buffer=10_000), shuffle=True, batch_size=7000)
    sizes = [len(json.dumps(big.state_dict())) for _ in big]
    assert max(sizes) < 800


def test_a_loader_can_be_copied_and_pickled() -> None:
    first = loader(shuffle=True)
    for _ in islice(first, 4):
        pass
    for twin in (copy.copy(first), pickle.loads(pickle.dumps(first))):
        assert twin.state_dict() == first.state_dict()
        twin.load_state_dict(first.state_dict())
        again = loader(shuffle=True)
        again.load_state_dict(first.state_dict())
        assert values(twin) == values(again)


# What is wrong with it.


def test_bad_records_are_named_or_masked() -> None:
    def read(unit: str, start: int = 0) -> Iterator[dict[str, Any]]:
        for n in range(start, 6):
            yield {"n": "x" if n == 4 else n}

    stream = penstock.stream(["a.log"], read)
    with pytest.raises(SchemaMismatchError, match=r"a.log at 4.*Stream.map") as raised:
        values(loader(stream))
    assert "a.log" in str(raised.value)
    assert values(loader(stream, on_error="mask")) == [[0, 1, 2], [3, 5]]
    with pytest.raises(BadRecordsError, match="max_bad=0"):
        values(loader(stream, on_error="mask", max_bad=0))
    with pytest.raises(OptionError, match="no record that was looked at has a field 'm'"):
        values(loader(stream, {"m": "float32"}))


@pytest.mark.parametrize("workers", ["auto", 1])
def test_what_read_yields_is_checked(workers: Any) -> None:
    def read(unit: str, start: int = 0) -> Iterator[Any]:
        yield {"n": 1}
        yield [2]

    with pytest.raises(OptionError, match=r"record 1 is a list, \[2\]: a stream yields dicts") as e:
        values(loader(penstock.stream(["a.log"], read), num_workers=workers))
    assert "unit 0, a.log" in "".join(e.value.__notes__)


@pytest.mark.parametrize("made", [None, 5, "text", [{}, 1]])
def test_what_map_returns_is_checked(made: Any) -> None:
    with pytest.raises(OptionError, match=r"return \[\] to drop") as raised:
        values(loader(flow([3]).map(lambda _: made)))
    assert "record 0 of unit 0" in "".join(raised.value.__notes__)


def test_errors_of_read_and_map_name_the_record() -> None:
    def read(unit: str, start: int = 0) -> Iterator[dict[str, int]]:
        yield {"n": 1}
        raise ConnectionError("gone")

    def divide(record: dict[str, int]) -> dict[str, int]:
        return {"n": 1 // (record["n"] - 2)}

    with pytest.raises(ConnectionError, match="gone") as raised:
        values(loader(penstock.stream(["a.log"], read)))
    assert "of unit 0, a.log was read" in "".join(raised.value.__notes__)
    with pytest.raises(ZeroDivisionError) as raised_by_map:
        values(loader(flow([5]).map(divide)))
    assert "record 2 of unit 0, 0 was read" in "".join(raised_by_map.value.__notes__)
    # It would end the loop, as if there were no more records.
    with pytest.raises(RuntimeError, match=r"StopIteration.* by encode or the source") as stopped:
        values(loader(flow([5]).map(lambda _record: next(iter([])))))
    assert "record 0 of unit 0, 0 was read" in "".join(stopped.value.__notes__)


def test_a_unit_that_does_not_pickle_is_named() -> None:
    stream = penstock.stream([1, threading.Lock()], Reading([1, 1]))
    with pytest.raises(OptionError, match=r"unit 1 of the stream, .*lock.* does not pickle"):
        values(loader(stream, num_workers=1, multiprocessing_context="spawn"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"skip": [1]}, "skip needs records that have numbers"),
        ({"materialize": True}, "materialize=True needs records that have numbers"),
        ({"shuffle": "block"}, "shuffle='block'"),
        ({"weights": "n"}, "weights and balance need records that have numbers"),
        ({"balance": "n"}, "weights and balance need records that have numbers"),
        ({"batch_size": CostPlan("n", 5)}, "needs records that have numbers"),
        ({"batch_size": ThreeFive()}, "needs records that have numbers"),
        ({"encode": ["n"]}, "only flow"),
    ],
)
def test_options_for_numbered_records_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        loader(**options)


def test_a_stream_is_no_source_of_a_mixture() -> None:
    for what in (flow(SIZES), counting, Sharded(5)):
        with pytest.raises(OptionError, match="has no length"):
            penstock.Mixture({"a": what, "b": [{"n": 1}]}, {"a": 1, "b": 1})


def test_units_of_a_generator_are_those_of_every_stream_made_of_it() -> None:
    one = penstock.stream((unit for unit in range(2)), Reading([2, 2]))
    assert values(loader(one)) == values(loader(one.map(lambda record: record)))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: penstock.stream("a.log", Reading([])), "expected a list of units"),
        (lambda: penstock.stream(5, Reading([])), "units=5: expected a list"),  # type: ignore[arg-type]
        (lambda: penstock.stream({1, 2}, Reading([])), r"give sorted\(units\)"),
        (lambda: DataLoader(lambda: iter([]), batch_size=2), "that only flow: penstock.stream"),
        (lambda: penstock.stream([1], lambda unit: []), r"def read\(unit, start=0\)"),
        (lambda: penstock.stream([1], 5), "expected a function"),  # type: ignore[arg-type]
        (lambda: penstock.stream([1], Reading([]), buffer=0), "buffer=0"),
        (lambda: penstock.stream([1], Reading([]), length=-1), "length=-1"),
        (lambda: flow([1]).map(5), "map takes a function"),  # type: ignore[arg-type]
    ],
)
def test_arguments_are_checked(call: Any, match: str) -> None:
    with pytest.raises(OptionError, match=match):
        call()


def test_units_may_come_from_a_function_which_is_asked_once() -> None:
    asked = []

    def units() -> list[int]:
        asked.append(1)
        return [*range(len(SIZES))]

    stream = penstock.stream(units, Reading(SIZES))
    assert asked == []
    assert sorted(sum(values(loader(stream, num_workers=2)), [])) == all_of(SIZES)  # noqa: RUF017
    assert asked == [1]


def test_a_function_of_the_epoch_is_asked_for_the_units_of_each() -> None:
    units = DrawnUnits(4, 6)
    stream = penstock.stream(units, Reading([5, 5, 5, 5]))
    found = loader(stream, epochs=3, batch_size=5)
    expected = [[UNIT * unit + at for at in range(5)] for e in range(3) for unit in units(e)]
    in_workers = {"num_workers": 2, "multiprocessing_context": "spawn"}
    assert values(loader(stream, epochs=3, batch_size=5, **in_workers)) == expected
    assert [rows(batch) for batch in islice(found, 8)] == expected[:8]
    state = found.state_dict()
    found.load_state_dict(state)
    assert values(found) == expected[8:]
    with pytest.raises(ChangedSourceError, match="there were 6, and there are 7 now"):
        loader(penstock.stream(DrawnUnits(4, 7), Reading([5] * 4))).load_state_dict(state)
    assert repr(stream) == "<Stream of units by epoch>"


def test_units_drawn_without_end_go_on() -> None:
    stream = penstock.stream(DrawnUnits(4, 6), Reading([5, 5, 5, 5]), buffer=3)
    endless = loader(stream, shuffle=True, epochs=None)
    batches = [rows(batch) for batch in islice(endless, 40)]
    state: Any = endless.state_dict()
    assert state["epoch"] == 3
    again = loader(stream, shuffle=True, epochs=None)
    again.load_state_dict(state)
    longer = loader(stream, shuffle=True, epochs=None)
    assert [rows(batch) for batch in islice(longer, 50)] == [
        *batches,
        *(rows(batch) for batch in islice(again, 10)),
    ]


def test_other_kinds_of_streams_take_a_buffer_a_name_and_a_map() -> None:
    def doubled(record: dict[str, int]) -> list[dict[str, int]]:
        return [record] * (record["n"] % 3)

    for what, count in ((counting, 10), (Sharded(20), 20)):
        stream = penstock.stream(what, buffer=2, name="numbers").map(doubled)
        assert "'numbers'" in repr(stream)
        found = [n for batch in loader(stream, shuffle=True) for n in rows(batch)]
        whole = [n for n in range(count) for _ in range(n % 3)]
        assert sorted(found) == whole != found
        # Windows of two records, or of all that a map makes of one.
        assert max(abs(found[at] - whole[at]) for at in range(len(whole))) <= 2
    with pytest.raises(OptionError, match=r"Give def read\(unit, start=0\)"):
        penstock.stream([1, 2])


class _Whole:
    """Hands whole records over beside the fields of another encoder."""

    def __init__(self) -> None:
        self.inner = FieldEncoder({"n": "int64"})
        self.fields = self.inner.fields

    def read(self, source: Any, ids: Any) -> Any:
        return source.read(ids, self.inner.fields), source.read(ids)

    def arrays(self, read: Any, where: Any) -> Any:
        return self.inner.arrays(read[0], where), read[1]

    def batch(self, arrays: Any, where: Any, valid: Any) -> Batch:
        made = self.inner.batch(arrays[0], where, valid)
        return Batch({**made, "metadata": arrays[1]}, ids=made.ids, valid=made.valid)


@pytest.mark.parametrize("chunk", [0, 4])
def test_whole_records_may_travel_beside_the_fields_of_an_encoder(chunk: int) -> None:
    for batch in loader(flow(SIZES, chunk=chunk, mapped=True), _Whole()):
        assert [record["n"] for record in batch["metadata"]] == batch["n"].tolist()
        assert all(record["word"].startswith("w") for record in batch["metadata"])


# Another stream.


def _state(stream: Any, batches: int, **options: Any) -> dict[str, Any]:
    first = loader(stream, **options)
    states = [first.state_dict() for _ in islice(first, batches)]
    return states[-1]


def test_other_units_are_refused_or_continued() -> None:
    before = penstock.stream(["a", "b", "c"], lambda unit, start: Reading([5] * 3)(0, start))
    after = penstock.stream(["a", "x", "c"], lambda unit, start: Reading([5] * 3)(1, start))
    state = _state(before, 2, shuffle=True)
    with pytest.raises(ChangedSourceError, match="units of the stream changed"):
        loader(after).load_state_dict(state)
    goes_on = loader(after, on_changed="continue")
    goes_on.load_state_dict(state)
    assert len([n for batch in goes_on for n in rows(batch)]) == 9


def test_fewer_units_go_on_each_as_far_as_it_came() -> None:
    state = _state(flow([5, 5, 5, 5], buffer=2), 4, shuffle=True, seed=1)
    fewer = loader(flow([5, 5], buffer=2), on_changed="continue")
    fewer.load_state_dict(state)
    first = loader(flow([5, 5, 5, 5], buffer=2), shuffle=True, seed=1)
    seen = {n for batch in islice(first, 4) for n in rows(batch)}
    assert sorted(sum(values(fewer), [])) == sorted(set(all_of([5, 5])) - seen)  # noqa: RUF017


def test_appended_units_are_left_out_of_a_run_that_began_without_them() -> None:
    state = _state(flow([5, 5]), 2)
    longer = loader(flow([5, 5, 5]), epochs=2)
    with pytest.warns(UserWarning, match="1 unit was appended"):
        longer.load_state_dict(state)
    assert sum(values(longer), []) == [*all_of([5, 5])[6:], *all_of([5, 5])]  # noqa: RUF017


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("version", 2),
        ("epoch", -1),
        ("done", {"whole": [[0, 9]], "parts": {}}),
        ("done", {"whole": [], "parts": {"7": [[0, 1]]}}),
        ("done", {"whole": [], "parts": {"0": [[0]]}}),
        ("done", {"whole": [], "parts": {"x": [[0, 1]]}}),
        ("done", {"whole": [], "parts": {"0": [[0, 1]]}}),
        ("done", []),
        ("order", {"kind": "stream"}),
        ("surplus", 1),
    ],
)
def test_a_state_that_is_none_is_refused(key: str, value: Any) -> None:
    state: Any = loader().state_dict()
    with pytest.raises(OptionError, match="not the state of a stream"):
        loader().load_state_dict({**state, key: value})


def test_a_part_of_a_state_goes_on_at_its_own_rank_only() -> None:
    def part(rank: int, world_size: int = 2) -> DataLoader:
        return loader(flow([5] * 6), rank=rank, world_size=world_size)

    first = part(0)
    whole = values(part(0))
    for _ in islice(first, 2):
        pass
    for state in (first.state_dict(), json.loads(json.dumps(first.state_dict()))):
        assert state["part"] == [0, 2]
        again = part(0)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert values(again) == whole[2:]
        assert again.state_dict()["part"] == [0, 2]  # Also where its epoch has ended.
        for other in (part(1), part(0, 3), loader(flow([5] * 6))):
            with pytest.raises(OptionError, match=r"the part of \[rank, world_size\] \[0, 2\]"):
                other.load_state_dict(state)
    assert "part" not in part(0).state_dict()


def test_states_of_streams_and_sources_are_told_apart() -> None:
    source = [{"n": 1}]
    with pytest.raises(OptionError, match="counts records by number"):
        loader().load_state_dict(loader(source).state_dict())
    with pytest.raises(OptionError, match="is of a stream"):
        loader(source).load_state_dict(loader().state_dict())
