"""What every `Store` promises; each store's tests inherit these and say where its bytes lie.

A store that is only read inherits the first class, or the second one if it has listings, and gives
a `FilledPlace`.
"""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from penstock.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from penstock.storage import Store, join

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.storage import Entry

ODD_NAMES = [
    "a b c.jsonl",
    "grüße.jsonl",
    "100%.jsonl",
    "a%20b.jsonl",
    "%25.jsonl",
    "a+b.jsonl",
    "a#b.jsonl",
    "what?.jsonl",
    "semi;colon&ampersand=equals.jsonl",
    "日本語 😀.jsonl",
    "'quoted' \"twice\".jsonl",
    "(a) [b] {c}.jsonl",
    "~tilde@at$dollar!.jsonl",
    "back\\slash.jsonl",
    "-dash.jsonl",
    "...dots.jsonl",
    "UPPER.JSONL",
]
CREATORS = 8


@dataclass(frozen=True)
class Place:
    """A store and an empty directory in it that the test has for itself."""

    store: Store
    directory: str

    def name(self, *parts: str) -> str:
        return join(self.directory, "/".join(parts))

    def publish(self, name: str, content: bytes, *, exclusive: bool = False) -> str:
        """Publish a file below the directory and return its whole name."""
        whole = self.name(name)
        draft = self.store.draft(whole.rpartition("/")[0], name.rpartition("/")[2])
        draft.write(content)
        draft.publish(whole, exclusive=exclusive)
        return whole

    def read(self, name: str) -> bytes:
        file = self.store.open(name)
        try:
            return file.read_at(0, file.size)
        finally:
            file.close()

    def listed(self, *, recursive: bool = False) -> dict[str, Entry]:
        """Return the visible files by name; none where the directory is not there (yet)."""
        found: dict[str, Entry] = {}
        with suppress(ObjectNotFoundError):
            for entry in self.store.list(self.directory, recursive=recursive):
                if not entry.name.rpartition("/")[2].endswith((".penstock-tmp", ".penstock-claim")):
                    assert entry.name not in found
                    found[entry.name] = entry
        return found


@dataclass(frozen=True)
class FilledPlace(Place):
    """A directory in a store that is only read; the test fills it behind the store's back."""

    put: Callable[[str, bytes], object]

    def publish(self, name: str, content: bytes, *, exclusive: bool = False) -> str:
        assert not exclusive
        self.put(self.name(name), content)
        return self.name(name)


class ReadOnlyContract:
    """What a store promises that is only read."""

    def test_nothing_is_written_or_removed(self, place: Place) -> None:
        name = place.publish("a", b"kept")
        for write in (
            lambda: place.store.draft(place.directory, "b"),
            lambda: place.store.delete(name),
        ):
            with pytest.raises(PermissionError, match="read-only place") as raised:
                write()
            assert isinstance(raised.value, StorageError)
        assert list(place.store.clear_dead_drafts(place.directory)) == []
        assert place.read(name) == b"kept"


class ReadContract:
    """What every store promises; each test class gives the fixture `place`."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError

    def test_what_is_there_is_described_and_read(self, place: Place) -> None:
        before = time.time()
        name = place.publish("a.jsonl", b"one\ntwo\n")
        entry = place.store.entry(name)
        assert (entry.name, entry.size) == (name, 8)
        assert before - 60 <= entry.modified <= time.time() + 60
        file = place.store.open(name)
        assert (file.path, file.size) == (place.store.path(name), 8)
        assert file.read_at(4, 3) == b"two"
        file.close()

    def test_an_empty_file_is_read(self, place: Place) -> None:
        name = place.publish("empty", b"")
        assert place.store.entry(name).size == 0
        file = place.store.open(name)
        assert file.size == 0
        assert file.read_at(0, 0) == b""
        assert file.read_ranges([(0, 0)]) == [b""]
        file.close()

    @pytest.mark.parametrize("odd", ODD_NAMES)
    def test_odd_names_are_read(self, place: Place, odd: str) -> None:
        name, nested = place.publish(odd, odd.encode()), place.publish(f"in {odd}/{odd}", b"nested")
        assert place.read(name) == odd.encode()
        assert place.read(nested) == b"nested"
        assert place.store.entry(nested).name == nested

    def test_a_missing_file_is_not_found(self, place: Place) -> None:
        place.publish("other", b"")
        missing = place.name("missing")
        for call in (place.store.entry, place.read):
            with pytest.raises(ObjectNotFoundError) as raised:
                call(missing)
            assert place.store.path(missing) in str(raised.value)
            assert raised.value.path == place.store.path(missing)

    def test_ranges_come_in_the_order_asked(self, place: Place) -> None:
        content = bytes(range(256)) * 20_000
        name = place.publish("a", content)
        file = place.store.open(name)
        ranges = [
            (5_000_000, 100),
            (0, 10),
            (4, 20),
            (3, 0),
            (len(content) - 1, 1),
            (0, 10),
            (1_500_000, 600_000),
        ]
        expected = [content[start : start + length] for start, length in ranges]
        assert file.read_ranges(ranges) == expected
        assert [file.read_at(start, length) for start, length in ranges] == expected
        assert file.read_ranges([]) == []
        file.close()

    def test_a_file_replaced_while_open_is_never_mixed(self, place: Place) -> None:
        old, new = b"o" * 3_000_000, b"n" * 3_000_000
        name = place.publish("a", old)
        file = place.store.open(name)
        assert file.read_at(0, 10) == old[:10]
        place.publish("a", new)
        try:
            seen = file.read_at(10, 2_000_000)
        except ObjectChangedError as changed:
            seen, told = old[:2_000_000], str(changed)
        else:
            told = place.store.path(name)
        assert seen == old[:2_000_000]
        assert place.store.path(name) in told
        file.close()
        assert place.read(name) == new

    def test_threads_share_an_open_file(self, place: Place) -> None:
        content = bytes(i % 251 for i in range(200_000))
        file = place.store.open(place.publish("a", content))

        def read(start: int) -> bool:
            return file.read_at(start, 1000) == content[start : start + 1000]

        with ThreadPoolExecutor(CREATORS) as threads:
            assert all(threads.map(read, range(0, 199_000, 2_000)))
        file.close()

    def test_a_store_is_a_small_value_that_pickles(self, place: Place) -> None:
        name = place.publish("a", b"x")
        packed = pickle.dumps(place.store)
        assert len(packed) < 1000
        copy: Store = pickle.loads(packed)
        assert copy == place.store
        assert hash(copy) == hash(place.store)
        assert copy.entry(name) == place.store.entry(name)

    def test_an_entry_pickles(self, place: Place) -> None:
        entry = place.store.entry(place.publish("a", b"x"))
        assert pickle.loads(pickle.dumps(entry)) == entry


class ListContract(ReadContract):
    """What a store promises that lists its files."""

    def test_a_listing_says_what_an_entry_says(self, place: Place) -> None:
        name = place.publish("a.jsonl", b"one\ntwo\n")
        entry = place.store.entry(name)
        (listed,) = place.listed().values()
        # A listing may know the time more exactly than a single answer does.
        assert abs(listed.modified - entry.modified) < 1
        assert replace(listed, modified=entry.modified) == entry

    @pytest.mark.parametrize("odd", ODD_NAMES)
    def test_odd_names_are_listed(self, place: Place, odd: str) -> None:
        name, nested = place.publish(odd, b""), place.publish(f"in {odd}/{odd}", b"")
        assert list(place.listed()) == [name]
        assert set(place.listed(recursive=True)) == {name, nested}

    def test_a_long_name_is_a_name(self, place: Place) -> None:
        name = place.publish("ü" * 125 + ".zst", b"x")
        assert list(place.listed()) == [name]

    def test_listing_stays_in_the_directory_unless_asked(self, place: Place) -> None:
        names = [place.publish(name, b"x") for name in ("a", "b/c", "b/d/e", "bb")]
        assert set(place.listed()) == {names[0], names[3]}
        assert set(place.listed(recursive=True)) == set(names)
        below = Place(place.store, place.name("b"))
        assert set(below.listed()) == {names[1]}
        assert set(below.listed(recursive=True)) == {names[1], names[2]}

    def test_hidden_files_are_listed_too(self, place: Place) -> None:
        name = place.publish(".hidden", b"x")
        assert name in place.listed()

    def test_a_missing_directory_is_not_an_empty_one(self, place: Place) -> None:
        missing = place.name("missing")
        for recursive in (False, True):
            with pytest.raises(FileNotFoundError) as raised:
                list(place.store.list(missing, recursive=recursive))
            assert isinstance(raised.value, ObjectNotFoundError)
            assert place.store.path(missing) in str(raised.value)

    def test_a_listing_saves_asking_again(self, place: Place) -> None:
        name = place.publish("a", b"content")
        file = place.store.open(name, place.listed()[name])
        assert (file.size, file.read_at(0, 7)) == (7, b"content")
        file.close()


class StoreContract(ListContract):
    """What a store promises that is written to, too."""

    def test_a_draft_shows_nothing_until_it_is_published(self, place: Place) -> None:
        draft = place.store.draft(place.directory, "a.jsonl")
        draft.write(b"half")
        assert place.listed() == {}
        with pytest.raises(ObjectNotFoundError):
            place.store.entry(place.name("a.jsonl"))
        draft.write(b" and half")
        draft.publish(place.name("a.jsonl"), exclusive=True)
        assert list(place.listed()) == [place.name("a.jsonl")]
        assert place.read(place.name("a.jsonl")) == b"half and half"

    def test_a_discarded_draft_leaves_nothing(self, place: Place) -> None:
        place.publish("other", b"")
        draft = place.store.draft(place.directory, "a.jsonl")
        draft.write(b"never seen")
        draft.discard()
        draft.discard()
        assert [entry.name for entry in place.store.list(place.directory)] == [place.name("other")]

    def test_discarding_what_was_published_does_nothing(self, place: Place) -> None:
        draft = place.store.draft(place.directory, "a.jsonl")
        draft.write(b"kept")
        draft.publish(place.name("a.jsonl"), exclusive=True)
        draft.discard()
        assert place.read(place.name("a.jsonl")) == b"kept"

    def test_a_dropped_draft_leaves_nothing(self, place: Place) -> None:
        place.publish("other", b"")
        draft = place.store.draft(place.directory, "a.jsonl")
        draft.write(b"never seen")
        del draft
        assert [entry.name for entry in place.store.list(place.directory)] == [place.name("other")]

    def test_an_exclusive_publish_never_replaces_and_may_take_another_name(
        self, place: Place
    ) -> None:
        taken = place.publish("part-0", b"first", exclusive=True)
        draft = place.store.draft(place.directory, "part")
        draft.write(b"second")
        for _ in range(2):
            with pytest.raises(ObjectExistsError) as refused:
                draft.publish(taken, exclusive=True)
            assert place.store.path(taken) in str(refused.value)
            assert refused.value.path == place.store.path(taken)
        draft.publish(place.name("part-1"), exclusive=True)
        assert place.read(taken) == b"first"
        assert place.read(place.name("part-1")) == b"second"
        assert len(list(place.store.list(place.directory))) == 2

    def test_a_replacing_publish_replaces(self, place: Place) -> None:
        name = place.publish("a", b"the old content, which is longer")
        old = place.store.entry(name)
        assert place.publish("a", b"new") == name
        assert place.read(name) == b"new"
        new = place.store.entry(name)
        assert new.size == 3
        assert old.version is None or old.version != new.version
        assert len(list(place.store.list(place.directory))) == 1

    @pytest.mark.parametrize("exclusive", [True, False])
    def test_an_empty_draft_is_a_file(self, place: Place, *, exclusive: bool) -> None:
        draft = place.store.draft(place.directory, "empty")
        draft.publish(place.name("empty"), exclusive=exclusive)
        assert place.store.entry(place.name("empty")).size == 0

    def test_bytes_come_as_bytes_bytearray_or_any_memoryview(self, place: Place) -> None:
        draft = place.store.draft(place.directory, "a")
        draft.write(b"ab")
        draft.write(bytearray(b"cd"))
        draft.write(memoryview(b"xxefxx")[2:4])
        draft.write(memoryview(b"\1\0\0\0\2\0\0\0").cast("I"))
        draft.write(b"")
        draft.publish(place.name("a"), exclusive=True)
        assert place.read(place.name("a")) == b"abcdef\1\0\0\0\2\0\0\0"

    @pytest.mark.parametrize("odd", ODD_NAMES)
    def test_odd_names_are_taken_and_freed(self, place: Place, odd: str) -> None:
        name = place.publish(odd, odd.encode(), exclusive=True)
        nested = place.publish(f"in {odd}/{odd}", b"nested", exclusive=True)
        with pytest.raises(ObjectExistsError):
            place.publish(odd, b"", exclusive=True)
        place.store.delete(name)
        assert set(place.listed(recursive=True)) == {nested}

    def test_a_missing_file_is_not_deleted(self, place: Place) -> None:
        place.publish("other", b"")
        missing = place.name("missing")
        with pytest.raises(ObjectNotFoundError) as raised:
            place.store.delete(missing)
        assert place.store.path(missing) in str(raised.value)
        assert raised.value.path == place.store.path(missing)

    def test_a_deleted_file_is_gone_and_its_name_is_free(self, place: Place) -> None:
        name = place.publish("a", b"old")
        place.publish("b", b"")
        place.store.delete(name)
        assert list(place.listed()) == [place.name("b")]
        with pytest.raises(ObjectNotFoundError):
            place.store.delete(name)
        place.publish("a", b"new", exclusive=True)
        assert place.read(name) == b"new"

    def test_of_many_threads_exactly_one_takes_a_name(self, place: Place) -> None:
        together = threading.Barrier(CREATORS)

        def create(number: int) -> int:
            draft = place.store.draft(place.directory, "one")
            draft.write(b"%d" % number)
            together.wait()
            try:
                draft.publish(place.name("one"), exclusive=True)
            except ObjectExistsError:
                draft.discard()
                return -1
            return number

        with ThreadPoolExecutor(CREATORS) as threads:
            winners = {n for n in threads.map(create, range(CREATORS)) if n >= 0}
        assert len(winners) == 1
        assert place.read(place.name("one")) == b"%d" % winners.pop()
        assert len(list(place.store.list(place.directory))) == 1

    def test_a_living_draft_is_not_cleared_away(self, place: Place) -> None:
        draft = place.store.draft(place.directory, "a")
        draft.write(b"alive")
        assert list(place.store.clear_dead_drafts(place.directory)) == []
        draft.publish(place.name("a"), exclusive=True)
        assert place.read(place.name("a")) == b"alive"

    def test_clearing_takes_nothing_that_was_published(self, place: Place) -> None:
        names = {place.publish(n, b"x") for n in ("a", ".b", "_c", ".tmp", "x.penstock-tmp.jsonl")}
        assert list(place.store.clear_dead_drafts(place.directory)) == []
        assert set(place.listed()) == names

    def test_clearing_a_missing_directory_does_nothing(self, place: Place) -> None:
        assert list(place.store.clear_dead_drafts(place.name("missing"))) == []
