"""Async that is real: many streams at once, none in another's way, and all can be cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile, _records
from penstock.jsonl._decode import DecodedRun, MalformedLine, decode_piece
from penstock.jsonl._prefetch import ShardRuns
from penstock.jsonl._records import SLICE_BYTES
from tests.jsonl.doors import names_in, records, write
from tests.jsonl.slow_store import Events, SlowStore
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path
    from typing import Self

    from penstock.jsonl._text import TextPiece

MANY = 50
SECONDS = 100


class Turns:
    """Counts the turns of the event loop while a block runs."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._turn())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _turn(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("ending", ["", ".zst", ".gz"])
def test_fifty_readers_and_writers_wait_for_each_other_in_the_midst_of_their_files(
    ending: str, tmp_path: Path
) -> None:
    # Every one stops half-way until all have come half-way: were one held up by another that has
    # not finished, none ever would.
    items = [{"n": n, "text": "x" * 100} for n in range(200)]
    for number in range(MANY // 2):
        write(JsonlFile(tmp_path / f"read-{number}.jsonl{ending}"), items)
    events: list[tuple[str, int]] = []

    async def read(number: int, half_way: asyncio.Barrier) -> None:
        seen = []
        async for record in JsonlFile(tmp_path / f"read-{number}.jsonl{ending}").iter_records():
            if len(seen) == 100:
                events.append(("half", number))
                await half_way.wait()
            seen.append(record)
            await asyncio.sleep(0)
        assert seen == items
        events.append(("end", number))

    async def put(number: int, half_way: asyncio.Barrier) -> None:
        file = JsonlFile(tmp_path / f"write-{number}.jsonl{ending}")
        async with file.writer(flush_bytes=1000, frame_bytes=1000) as writer:
            for item in items[:100]:
                await writer.write(item)
                await asyncio.sleep(0)
            await writer.flush()
            events.append(("half", number))
            await half_way.wait()
            await writer.write_many(items[100:])
        events.append(("end", number))

    async def use() -> None:
        half_way = asyncio.Barrier(MANY)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(
                *(read(number, half_way) for number in range(MANY // 2)),
                *(put(number, half_way) for number in range(MANY // 2, MANY)),
            )

    asyncio.run(use())
    assert [what for what, _ in events] == ["half"] * MANY + ["end"] * MANY
    for number in range(MANY // 2, MANY):
        assert records(tmp_path / f"write-{number}.jsonl{ending}") == items


def test_fifty_streams_of_directories_and_arrow_wait_for_each_other_too(tmp_path: Path) -> None:
    write(
        JsonlDir(tmp_path / "in"),
        [{"n": n} for n in range(300)],
        max_records_per_shard=100,
        shard_extension=".jsonl.zst",
    )
    kinds: list[Any] = [
        lambda: JsonlDir(tmp_path / "in").iter_records(),
        lambda: JsonlDir(tmp_path / "in").iter_batches(batch_size=10),
        lambda: JsonlDir(tmp_path / "in").iter_arrow_batches(batch_size=10),
    ]
    finished = 0

    async def read(number: int, half_way: asyncio.Barrier) -> None:
        nonlocal finished
        rows = 0
        waited = False
        async for item in kinds[number % 3]():
            rows += 1 if number % 3 == 0 else len(item)
            if rows >= 150 and not waited:
                waited = True
                assert finished == 0
                await half_way.wait()
        assert rows == 300
        finished += 1

    async def put(number: int, half_way: asyncio.Barrier) -> None:
        nonlocal finished
        async with JsonlDir(tmp_path / "out").writer(max_records_per_shard=50) as writer:
            await writer.write_many([[number, n] for n in range(75)])
            assert finished == 0
            await half_way.wait()
            await writer.write_many([[number, n] for n in range(75, 150)])
        finished += 1

    async def use() -> None:
        half_way = asyncio.Barrier(MANY)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(
                *(read(number, half_way) for number in range(30)),
                *(put(number, half_way) for number in range(30, MANY)),
            )

    asyncio.run(use())
    assert sorted(records(tmp_path / "out")) == [
        [w, n] for w in range(30, MANY) for n in range(150)
    ]
    assert len(names_in(tmp_path / "out")) == 20 * 3


@pytest.mark.parametrize("place", ["file", "directory", "directory without prefetch"])
@pytest.mark.parametrize("ending", ["", ".zst"])
def test_reading_holds_the_loop_for_no_more_than_a_slice(
    ending: str, place: str, tmp_path: Path
) -> None:
    line_bytes = 1000
    items = ["x" * (line_bytes - 3)] * 2000
    write(JsonlFile(tmp_path / f"a.jsonl{ending}"), items)
    write(JsonlFile(tmp_path / f"b.jsonl{ending}"), items)

    async def use() -> list[int]:
        if place == "file":
            stream = JsonlFile(tmp_path / f"a.jsonl{ending}").iter_records()
        else:
            stream = JsonlDir(tmp_path).iter_records(prefetch=place == "directory")
        async with Turns() as turns:
            return [turns.count async for _ in stream]

    seen = asyncio.run(use())
    assert len(seen) == (2000 if place == "file" else 4000)
    most_in_a_turn = max(seen.count(turn) for turn in set(seen))
    assert most_in_a_turn * line_bytes <= SLICE_BYTES + line_bytes


def test_only_a_long_line_is_decoded_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"[1]\n[" + b"1," * SLICE_BYTES + b"1]\n[2]\n")
    on_the_loop: list[bool] = []

    def noted(piece: TextPiece) -> Iterator[DecodedRun | MalformedLine]:
        on_the_loop.append(threading.current_thread() is threading.main_thread())
        return decode_piece(piece)

    monkeypatch.setattr(_records, "decode_piece", noted)

    async def use() -> list[int]:
        return [len(record) async for record in JsonlFile(tmp_path / "a.jsonl").iter_records()]

    assert asyncio.run(use()) == [1, SLICE_BYTES + 1, 1]
    assert on_the_loop == [True, False, True]


def test_arrow_batches_are_made_off_the_loop(tmp_path: Path) -> None:
    write(JsonlFile(tmp_path / "a.jsonl"), [{"n": n} for n in range(50_000)])

    async def use() -> list[int]:
        async with Turns() as turns:
            stream = JsonlFile(tmp_path / "a.jsonl").iter_arrow_batches(batch_size=5000)
            return [turns.count async for _ in stream]

    seen = asyncio.run(use())
    assert len(seen) == len(set(seen)) == 10


def test_a_slow_read_does_not_hold_the_loop() -> None:
    store = SlowStore({"a": b"1\n2\n"}, Events())
    store.gates["a"] = threading.Event()

    async def use() -> int:
        runs = ShardRuns(store.openers, 100)
        async with Turns() as turns:
            reading = asyncio.create_task(anext(runs))
            await asyncio.to_thread(store.events.wait_for, "open", "a")
            before = turns.count
            for _ in range(100):
                await asyncio.sleep(0)
            assert not reading.done()
            store.gates["a"].set()
            run = await reading
            assert isinstance(run, DecodedRun)
            assert run.items == [1, 2]
            await runs.aclose()
            return turns.count - before

    assert asyncio.run(use()) >= 100


@pytest.mark.parametrize("ending", ["", ".zst", ".gz"])
def test_compressing_and_publishing_do_not_hold_the_loop(ending: str, tmp_path: Path) -> None:
    text = b"".join(b"[%d,%d]\n" % (n, n * n) for n in range(100_000))

    async def use() -> list[int]:
        async with Turns() as turns:
            writer = JsonlFile(tmp_path / f"a.jsonl{ending}").writer(
                flush_bytes=1 << 30, compression_level=9
            )
            await writer.write_raw(b"[]\n")
            await writer.write_raw(text)
            counts = [turns.count]
            await writer.flush()
            counts.append(turns.count)
            await writer.close()
            counts.append(turns.count)
        return counts

    written, flushed, closed = asyncio.run(use())
    assert written < flushed < closed
    assert len(records(tmp_path / f"a.jsonl{ending}")) == 100_001


def test_writing_lets_others_run_once_a_slice(tmp_path: Path) -> None:
    line = "x" * 997

    async def use(how: str) -> list[int]:
        async with Turns() as turns, JsonlFile(tmp_path / "a.jsonl").writer() as writer:
            seen: list[int] = []

            async def lines() -> AsyncIterator[str]:
                for _ in range(1000):
                    seen.append(turns.count)
                    yield line

            if how == "write_many":
                await writer.write_many(lines())
            elif how == "write_raw":
                for _ in range(1000):
                    seen.append(turns.count)
                    await writer.write_raw(b'"' + line.encode() + b'"\n')
            else:
                async for item in lines():
                    await writer.write(item)
            return seen

    for how in ("write", "write_many", "write_raw"):
        seen = asyncio.run(use(how))
        most_in_a_turn = max(seen.count(turn) for turn in set(seen))
        assert most_in_a_turn <= SLICE_BYTES // 1000 + 1
        assert len(records(tmp_path / "a.jsonl")) == 1000


def test_a_large_raw_write_lets_others_run(tmp_path: Path) -> None:
    data = b'{"a":1}\n' * 200_000

    async def use() -> int:
        async with Turns() as turns, JsonlFile(tmp_path / "a.jsonl").writer() as writer:
            before = turns.count
            await writer.write_raw(data)
            return turns.count - before

    assert asyncio.run(use()) >= len(data) // SLICE_BYTES // 2
    assert (tmp_path / "a.jsonl").read_bytes() == data


@pytest.mark.parametrize("kind", ["file", "file.zst", "directory"])
def test_tasks_that_share_a_writer_lose_nothing(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"flush_bytes": 500}
    target: JsonlFile | JsonlDir = JsonlFile(tmp_path / f"a.jsonl{kind.removeprefix('file')}")
    if kind == "directory":
        target = JsonlDir(tmp_path)
        options["max_records_per_shard"] = 37

    async def put(writer: Any, number: int) -> None:
        for n in range(40):
            if n % 4 == 3:
                await writer.write_raw(b"[%d,%d]\n[%d,%d]\n" % (number, n, number, n + 1000))
            else:
                await writer.write([number, n])
            if n % 10 == 0:
                await writer.flush()

    async def use() -> None:
        async with target.writer(**options) as writer, asyncio.timeout(SECONDS):
            await asyncio.gather(*(put(writer, number) for number in range(20)))

    asyncio.run(use())
    seen = records(target)
    for number in range(20):
        mine = [n for who, n in seen if who == number]
        expected = []
        for n in range(40):
            expected += [n, n + 1000] if n % 4 == 3 else [n]
        assert mine == expected  # also in the order in which each task wrote them
    assert len(seen) == 20 * 50
    if kind == "directory":
        assert {len(records(shard)) for shard in target.shards_sync()} <= {37, 1000 % 37}  # type: ignore[union-attr]


class Cancelled:
    """A task that is cancelled after some turns of the loop."""

    def __init__(self, work: Any, turns: int) -> None:
        self._work = work
        self._turns = turns

    async def run(self) -> bool:
        """Return whether the task was cancelled before it ended."""
        task = asyncio.create_task(self._work)
        for _ in range(self._turns):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert result is None or isinstance(result, asyncio.CancelledError), result
        return result is not None


@pytest.mark.parametrize("ending", ["", ".zst", ".gz"])
@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_writer_cancelled_at_any_moment_publishes_all_or_nothing_of_what_was_unfinished(
    place: str, ending: str, tmp_path: Path
) -> None:
    cancelled = 0
    for turns in range(0, rounds(60, 600), rounds(4, 1)):
        directory = tmp_path / str(turns)
        directory.mkdir()
        file = JsonlFile(directory / f"a.jsonl{ending}")

        async def put(directory: Path = directory, file: JsonlFile = file) -> None:
            if place == "file":
                writer = file.writer(flush_bytes=100, frame_bytes=100)
            else:
                extension = ".jsonl.zst" if ending == ".zst" else ".jsonl"
                writer = JsonlDir(directory).writer(extension, 10, flush_bytes=30)
            async with writer:
                for n in range(100):
                    await writer.write(n)

        async def use(put: Any = put, turns: int = turns) -> bool:
            return await Cancelled(put(), turns).run()

        was_cancelled = asyncio.run(use())
        cancelled += was_cancelled
        left = names_in(directory)
        assert not [name for name in left if name.startswith(".")]
        seen = records(directory)
        assert seen == list(range(len(seen)))
        if not was_cancelled:
            assert len(seen) == 100
        elif place == "file":
            # Cancelled while it was being published, the file may have appeared, whole.
            assert len(seen) in (0, 100)
        else:
            assert len(seen) % 10 == 0
    assert cancelled


@pytest.mark.parametrize("kind", ["records", "batches", "arrow_batches"])
@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_reader_cancelled_at_any_moment_ends_cleanly(
    place: str, kind: str, tmp_path: Path
) -> None:
    for number in range(3):
        write(JsonlFile(tmp_path / f"{number}.jsonl.zst"), [{"n": n} for n in range(3000)])
    source = JsonlDir(tmp_path) if place == "directory" else JsonlFile(tmp_path / "0.jsonl.zst")
    complaints: list[object] = []
    cancelled = 0
    before = {*threading.enumerate()}

    async def take() -> None:
        async for _ in getattr(source, f"iter_{kind}")():
            await asyncio.sleep(0)

    async def use(turns: int) -> bool:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        return await Cancelled(take(), turns).run()

    for turns in range(0, rounds(40, 400), rounds(4, 1)):
        cancelled += asyncio.run(use(turns))
        new = {*threading.enumerate()} - before
        assert not [thread for thread in new if "penstock" in thread.name]
    assert cancelled
    assert complaints == []


def test_a_cancelled_write_does_not_leave_half_a_record_in_a_writer_that_goes_on(
    tmp_path: Path,
) -> None:
    file = JsonlFile(tmp_path / "a.jsonl")

    async def use() -> list[int]:
        async with file.writer(flush_bytes=10) as writer:
            done = []
            for n in range(200):
                task = asyncio.create_task(writer.write([n, "x" * 20]))
                for _ in range(n % 4):
                    await asyncio.sleep(0)
                task.cancel()
                (result,) = await asyncio.gather(task, return_exceptions=True)
                if result is None:
                    done.append(n)
            await writer.write("last")
            return done

    done = asyncio.run(use())
    seen = records(file)
    assert seen[-1] == "last"
    # A write that ended is in the file; one that was cancelled may be there, but only whole.
    numbers = [n for n, _ in seen[:-1]]
    assert numbers == sorted(set(numbers))
    assert set(done) <= set(numbers)
