"""While one shard is consumed, the next is already read and decoded, and no more than that."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl._decode import DecodedRun, MalformedLine
from penstock.jsonl._prefetch import ShardRuns, runs_of_shards, weigh_runs
from penstock.jsonl._text import TextPiece
from tests.jsonl.doors import both_doors
from tests.jsonl.slow_store import SECONDS, Events, SlowStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from penstock.jsonl._records import Run


class Consumer:
    """Takes runs one by one through either door; the loop of the async one runs meanwhile."""

    def __init__(
        self, shards: list[Callable[[int], Iterator[TextPiece]]], queue_size: int, door: str
    ) -> None:
        self._door = door
        self._runs: Any = (
            runs_of_shards(shards, queue_size)
            if door == "sync"
            else ShardRuns(lambda: shards, queue_size)
        )
        self._loop = asyncio.new_event_loop()
        # A loop that stands still would make no task run ahead.
        self._turning = threading.Thread(target=self._loop.run_forever, name="loop of a test")
        self._turning.start()

    def take(self) -> Run | None:
        """Return the next run, None at the end."""
        if self._door == "sync":
            return next(self._runs, None)
        return self._wait(anext(self._runs, None))

    def take_all(self) -> list[Any]:
        """Return the records that are left."""
        left: list[Any] = []
        while (run := self.take()) is not None:
            left += run.items if isinstance(run, DecodedRun) else [run]
        return left

    def close(self) -> None:
        if self._door == "sync":
            self._runs.close()
        else:
            self._wait(self._runs.aclose())

    def _wait(self, awaitable: Any) -> Any:
        async def whole() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(whole(), self._loop).result(SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            self._wait(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._turning.join(SECONDS)
            self._loop.close()


def numbered(
    name: str, pieces: int, records: int, events: Events
) -> Callable[[int], Iterator[TextPiece]]:
    """Return a shard of some pieces, each of some records `[name, n]`; its steps are events."""

    def open_shard(piece_bytes: int) -> Iterator[TextPiece]:
        assert piece_bytes > 0
        events.add("open", name)
        try:
            for piece in range(pieces):
                numbers = range(piece * records, (piece + 1) * records)
                text = "".join(f'["{name}", {number}]\n' for number in numbers).encode()
                yield TextPiece(name, piece * records + 1, text)
                events.add("taken", name, piece)
            events.add("end", name)
        finally:
            events.add("close", name)

    return open_shard


@both_doors
def test_the_next_shard_is_read_to_its_end_before_this_one_is_consumed(door: str) -> None:
    events = Events()
    shards = [numbered(name, 3, 10, events) for name in "abc"]
    with Consumer(shards, 1000, door) as consumer:
        first = consumer.take()
        assert isinstance(first, DecodedRun)
        assert first.items[0] == ["a", 0]
        events.wait_for("close", "b")  # read, decoded and waiting
        assert ("end", "b") in events.seen()
        assert ("end", "a") not in events.seen() or door == "async"
        assert ("open", "c") not in events.seen()  # one ahead, not two
        rest = [record for record in consumer.take_all() if isinstance(record, list)]
    assert first.items + rest == [[name, n] for name in "abc" for n in range(30)]


@both_doors
def test_a_slow_store_is_asked_for_the_next_shard_when_this_one_begins(door: str) -> None:
    line = b'"' + b"x" * 1000 + b'"\n'
    store = SlowStore({"a": line * 9000, "b": line * 10, "c": line * 10}, Events())
    store.gates = {"c": threading.Event()}
    with Consumer(store.openers(), 8192, door) as consumer:
        taken = 0

        def take() -> None:
            nonlocal taken
            run = consumer.take()
            assert isinstance(run, DecodedRun)
            taken += len(run.items)

        take()
        store.events.wait_for("close", "b")  # b has come whole while a has hardly begun.
        assert taken < 9000
        while taken < 9000:
            assert ("open", "c") not in store.events.seen()
            take()
        take()
        assert taken == 9010
        store.events.wait_for("open", "c")
        assert ("read", "c") not in store.events.seen()
        store.gates["c"].set()
        assert len(consumer.take_all()) == 10
    opened = [event[1] for event in store.events.seen() if event[0] == "open"]
    closed = [event[1] for event in store.events.seen() if event[0] == "close"]
    assert sorted(opened) == sorted(closed) == ["a", "b", "c"]


@both_doors
def test_without_prefetch_nothing_is_opened_before_its_turn(door: str) -> None:
    events = Events()
    shards = [numbered(name, 2, 10, events) for name in "ab"]
    with Consumer(shards, 0, door) as consumer:
        consumer.take()
        consumer.take()
        assert ("open", "b") not in events.seen()
        consumer.take()
        assert events.seen().index(("close", "a")) < events.seen().index(("open", "b"))
        assert len(consumer.take_all()) == 10


@both_doors
@pytest.mark.parametrize("queue_size", [1, 10, 95, 500])
def test_no_more_records_wait_than_the_queue_holds(queue_size: int, door: str) -> None:
    events = Events()
    a_piece = 10
    shards = [numbered("a", 1, 10, events), numbered("b", 200, a_piece, events)]
    waiting: list[int] = []
    consumed = 0

    def taken() -> int:
        return a_piece * sum(event[:2] == ("taken", "b") for event in events.seen())

    with Consumer(shards, queue_size, door) as consumer:
        assert isinstance(consumer.take(), DecodedRun)  # a, so that b begins to run ahead
        whole_pieces = max(1, queue_size // a_piece)
        # It comes as far as it may: the queue full, and one more piece asked for.
        events.wait_for("taken", "b", whole_pieces - 1)
        while (run := consumer.take()) is not None:
            assert isinstance(run, DecodedRun)
            consumed += len(run.items)
            waiting.append(taken() - consumed)
    assert consumed == 2000
    # One run may wait though it is larger than the queue, and one is in hand. The async door
    # fetches some pieces at a time from a thread, as text.
    in_hand = a_piece if door == "sync" else 17 * a_piece
    assert max(waiting) <= max(queue_size, a_piece) + in_hand


def test_the_queue_is_bounded_by_bytes_too() -> None:
    weigh = weigh_runs(8192)
    assert weigh(DecodedRun([1] * 100, 1000)) == 100
    assert weigh(MalformedLine("file", 1, b"bad", ValueError())) == 1
    large = DecodedRun([1], 10 << 20)
    assert 8192 // weigh(large) == 6  # 64 MiB in all
    assert weigh(DecodedRun([1], 1 << 30)) > 8192


@both_doors
def test_large_records_do_not_pile_up(door: str) -> None:
    events = Events()
    line = b'"' + b"x" * (20 << 20) + b'"\n'

    def large(piece_bytes: int) -> Iterator[TextPiece]:
        assert piece_bytes
        for number in range(12):
            yield TextPiece("b", number + 1, line)
            events.add("taken", "b", number)

    waiting = []
    with Consumer([numbered("a", 1, 10, events), large], 8192, door) as consumer:
        consumer.take()
        events.wait_for("taken", "b", 2)
        for consumed in range(1, 13):
            assert isinstance(consumer.take(), DecodedRun)
            waiting.append(sum(event[:2] == ("taken", "b") for event in events.seen()) - consumed)
    assert max(waiting) <= 4  # Three fit into 64 MiB, and one is in hand.


@both_doors
def test_closing_ends_the_work_ahead_and_closes_what_is_open(door: str) -> None:
    events = Events()
    shards = [numbered("a", 2, 10, events), numbered("b", 1_000_000, 10, events)]
    with Consumer(shards, 50, door) as consumer:
        consumer.take()
        events.wait_for("taken", "b", 0)
    assert ("close", "a") in events.seen()
    assert ("close", "b") in events.seen()
    assert ("end", "b") not in events.seen()


@both_doors
def test_an_error_ahead_waits_for_its_turn(door: str) -> None:
    events = Events()

    def failing(piece_bytes: int) -> Iterator[TextPiece]:
        assert piece_bytes
        yield TextPiece("b", 1, b'["b", 0]\n')
        events.add("failed", "b")
        raise LookupError("b fails")

    shards = [numbered("a", 3, 10, events), failing, numbered("c", 1, 10, events)]
    with Consumer(shards, 1000, door) as consumer:
        seen = consumer.take()
        assert isinstance(seen, DecodedRun)
        events.wait_for("failed", "b")
        for _ in range(3):
            run = consumer.take()
            assert isinstance(run, DecodedRun)
            seen.items.extend(run.items)
        assert seen.items == [*(["a", n] for n in range(30)), ["b", 0]]
        with pytest.raises(LookupError, match="b fails"):
            consumer.take()


def test_closing_async_runs_leaves_no_task() -> None:
    events = Events()

    async def use() -> None:
        runs = ShardRuns(lambda: [numbered(name, 2, 10, events) for name in "abc"], 100)
        async for _ in runs:
            break
        await runs.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(use())
    opened = sum(event[0] == "open" for event in events.seen())
    assert opened == sum(event[0] == "close" for event in events.seen())
