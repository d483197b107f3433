"""What becomes of lines that are not JSON."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import MalformedLineError
from penstock.jsonl import JsonlDir, JsonlFile, _policy
from penstock.jsonl._decode import MalformedLine
from penstock.jsonl._policy import ErrorPolicy
from tests.jsonl.doors import both_doors, read

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ["records", "batches", "arrow_batches"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def flat(items: list[Any], kind: str) -> list[Any]:
    """Return the records that are in records, lists or Arrow batches."""
    if kind == "records":
        return items
    return [record for batch in items for record in _rows(batch)]


def _rows(batch: Any) -> list[Any]:
    return batch if isinstance(batch, list) else batch.to_pylist()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A file whose lines 3, 6 and 7 are bad."""
    path = tmp_path / "mixed.jsonl"
    path.write_bytes(
        b'{"n":0}\n\nnot json\r\n \n{"n":1}\n{"n":\n\xff\xfe{}\n{"n":2}\n' + b'{"n":3}\n' * 3
    )
    return path


GOOD = [{"n": n} for n in (0, 1, 2, 3, 3, 3)]


@both_doors
@every_kind
def test_the_first_bad_line_is_raised_with_path_number_and_its_beginning(
    mixed: Path, kind: str, door: str
) -> None:
    outcome = read(mixed, door, kind)
    assert isinstance(outcome.error, MalformedLineError)
    assert isinstance(outcome.error, ValueError)
    assert outcome.error.path == str(mixed)
    assert outcome.error.line_number == 3
    assert f"{mixed}, line 3:" in str(outcome.error)
    assert "not json" in str(outcome.error)
    again = pickle.loads(pickle.dumps(outcome.error))
    assert type(again) is MalformedLineError
    assert (str(again), again.line_number) == (str(outcome.error), 3)


@both_doors
@pytest.mark.parametrize(
    ("kind", "options"), [("records", {}), *((k, {"batch_size": 1}) for k in KINDS[1:])]
)
def test_records_before_a_bad_line_come_out_first(
    mixed: Path, kind: str, options: dict[str, Any], door: str
) -> None:
    assert flat(read(mixed, door, kind, **options).items, kind) == [{"n": 0}]


@both_doors
@every_kind
def test_skipping_counts_warns_of_each_and_tells_the_number_at_the_end(
    mixed: Path, kind: str, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = read(mixed, door, kind, on_error="skip")
    assert outcome.error is None
    assert flat(outcome.items, kind) == GOOD
    assert outcome.skipped == 3
    assert {(entry.name, entry.levelno) for entry in caplog.records} == {
        ("penstock.jsonl", logging.WARNING)
    }
    *each, last = [entry.getMessage() for entry in caplog.records]
    assert [re.search(r"line (\d+):", message)[1] for message in each] == ["3", "6", "7"]  # type: ignore[index]
    assert all(str(mixed) in message for message in each)
    assert last.startswith("3 malformed lines were skipped")


@both_doors
@every_kind
def test_a_function_gets_number_line_and_error_and_iteration_goes_on(
    mixed: Path, kind: str, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[tuple[int, bytes, Exception]] = []
    outcome = read(mixed, door, kind, on_error=lambda *call: calls.append(call))
    assert flat(outcome.items, kind) == GOOD
    assert outcome.skipped == 3
    assert [call[:2] for call in calls] == [
        (3, b"not json"),
        (6, b'{"n":'),
        (7, b"\xff\xfe{}"),
    ]
    assert all(isinstance(error, MalformedLineError) for _, _, error in calls)
    assert not caplog.records


@both_doors
@every_kind
def test_what_the_function_raises_ends_the_stream(mixed: Path, kind: str, door: str) -> None:
    def refuse(number: int, line: bytes, error: Exception) -> None:
        raise LookupError(number, line) from error

    outcome = read(mixed, door, kind, on_error=refuse)
    assert isinstance(outcome.error, LookupError)
    assert outcome.error.args == (3, b"not json")


@pytest.mark.parametrize("on_error", ["ignore", "", None, 1, ["skip"], b"skip"])
@pytest.mark.parametrize("door", ["", "_sync"])
@every_kind
def test_another_policy_is_a_value_error_at_once(
    kind: str, door: str, on_error: object, tmp_path: Path
) -> None:
    for source in (JsonlFile(tmp_path / "a.jsonl"), JsonlDir(tmp_path)):
        with pytest.raises(ValueError, match="on_error=") as caught:
            getattr(source, f"iter_{kind}{door}")(on_error=on_error)
        assert repr(on_error) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"x" * 1000, "x" * 80),
        (b"\xff", r"b'\xff'"),
        (b"{}\x00", r"b'{}\x00'"),
        (b'"\xe9"', "not UTF-8 at byte 1"),
        (b"[" * 100_000, "deep"),
    ],
)
def test_the_error_shows_the_start_of_any_line_and_stays_short(
    line: bytes, shown: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n" + line + b"\n")
    error = read(path, "sync").error
    assert shown in str(error)
    assert "line 2" in str(error)
    assert len(str(error)) < 600 + len(str(path))


@both_doors
@every_kind
@pytest.mark.parametrize("names", [("a", "b"), ("a", "b.zst"), ("a.gz", "b")])
def test_in_a_directory_the_shard_is_named_and_lines_count_from_its_start(
    names: tuple[str, str], kind: str, door: str, tmp_path: Path
) -> None:
    directory = JsonlDir(tmp_path)
    paths = []
    for number, name in enumerate(names):
        stem, _, compression = name.partition(".")
        file = JsonlFile(tmp_path / f"{stem}.jsonl{f'.{compression}' if compression else ''}")
        with file.writer_sync() as writer:
            writer.write_raw(b'{"n":%d}\n\nbad\n{"n":%d}\n' % (number, number))
        paths.append(file.path)
    calls: list[tuple[int, str]] = []
    outcome = read(
        directory,
        door,
        kind,
        on_error=lambda number, line, error: calls.append((number, error.path)),  # noqa: ARG005
    )
    assert calls == [(3, paths[0]), (3, paths[1])]
    assert flat(outcome.items, kind) == [{"n": n} for n in (0, 0, 1, 1)]
    assert outcome.skipped == 2


@both_doors
@pytest.mark.parametrize("prefetch", [True, False])
def test_an_error_in_a_shard_surfaces_at_its_place_in_the_order(
    door: str,
    prefetch: bool,  # noqa: FBT001 (pytest passes it by name)
    tmp_path: Path,
) -> None:
    for n in range(4):
        bad = b"bad\n" if n == 2 else b""
        (tmp_path / f"part-0000{n}.jsonl").write_bytes(b'{"n":%d}\n' % n * 1000 + bad)
    outcome = read(tmp_path, door, prefetch=prefetch)
    assert [record["n"] for record in outcome.items] == [0] * 1000 + [1] * 1000 + [2] * 1000
    assert isinstance(outcome.error, MalformedLineError)
    assert outcome.error.path == str(tmp_path / "part-00002.jsonl")
    assert outcome.error.line_number == 1001


@both_doors
@every_kind
def test_whole_batches_before_a_bad_line_come_out_first(
    kind: str, door: str, tmp_path: Path
) -> None:
    (tmp_path / "part-0.jsonl").write_bytes(b'{"n":0}\n' * 95)
    (tmp_path / "part-1.jsonl").write_bytes(b'{"n":1}\n' * 19 + b"bad\n" + b'{"n":1}\n' * 50)
    options = {} if kind == "records" else {"batch_size": 10}
    outcome = read(tmp_path, door, kind, **options)
    whole = 114 if kind == "records" else 110
    assert [r["n"] for r in flat(outcome.items, kind)] == ([0] * 95 + [1] * 19)[:whole]
    assert isinstance(outcome.error, MalformedLineError)
    assert outcome.error.line_number == 20


@both_doors
@every_kind
def test_the_function_is_called_between_the_records_around_the_line(
    kind: str, door: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'1x\n{"n":1}\n\n{"n":2}\nbad\nbad\n\n{"n":3}\nbad\n')
    events: list[object] = []
    stream = JsonlFile(path)
    options: dict[str, Any] = {"on_error": lambda number, *_: events.append(number)}
    if kind != "records":
        options["batch_size"] = 1
    method = getattr(stream, f"iter_{kind}_sync")
    if door == "sync":
        for item in method(**options):
            events.append(item)  # noqa: PERF402 (the function appends between them)
    else:

        async def take() -> None:
            async for item in getattr(stream, f"iter_{kind}")(**options):
                events.append(item)  # noqa: PERF401

        asyncio.run(take())
    shown = [event if isinstance(event, int) else flat([event], kind)[0]["n"] for event in events]
    assert shown == [1, 1, 2, 5, 6, 3, 9]
    assert [isinstance(event, int) for event in events] == [1, 0, 0, 1, 1, 0, 1]


def test_warnings_are_rate_limited_and_none_goes_uncounted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(_policy, "time", SimpleNamespace(monotonic=lambda: clock.now))
    policy = ErrorPolicy("skip")
    numbers = itertools.count(1)

    def skip(times: int) -> list[str]:
        caplog.clear()
        for _ in range(times):
            policy.handle(MalformedLine("file", next(numbers), b"bad", ValueError("why")))
        return [entry.getMessage() for entry in caplog.records]

    assert len(skip(10)) == 10
    assert skip(500) == []
    clock.now += 1.0
    (message,) = skip(200)
    assert "line 511" in message
    assert "500 more" in message
    clock.now += 5.0
    (message,) = skip(1)
    assert "199 more" in message
    assert policy.skipped == 711
    caplog.clear()
    policy.finish()
    assert "711" in caplog.text


def test_many_bad_lines_make_few_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"bad\n" * 50_000)
    outcome = read(path, "sync", on_error="skip")
    assert outcome.skipped == 50_000
    assert 11 <= len(caplog.records) < 5_000
    assert caplog.records[-1].getMessage().startswith("50000 malformed lines")


@both_doors
def test_a_clean_stream_says_nothing(
    door: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n\n{}\n")
    assert read(path, door, on_error="skip").skipped == 0
    assert not caplog.records


def test_the_count_is_on_the_iterator_while_it_runs(mixed: Path) -> None:
    stream = JsonlFile(mixed).iter_records_sync(on_error="skip")
    assert stream.skipped == 0
    assert next(stream) == {"n": 0}
    assert next(stream) == {"n": 1}
    assert stream.skipped == 1
    assert next(stream) == {"n": 2}
    assert stream.skipped == 3
    stream.close()
