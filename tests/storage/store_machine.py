"""A store and a perfect one in memory, taken through the same steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from penstock.errors import ObjectExistsError, ObjectNotFoundError

if TYPE_CHECKING:
    from penstock.storage import Draft
    from tests.storage.store_contract import Place

NAMES = st.sampled_from(["a", "b.jsonl", "sub/a", "sub/deep/b ü", "100%", "part-00000.jsonl"])
CONTENTS = st.binary(max_size=300)


class StoreMachine(RuleBasedStateMachine):
    """Every step is done to both; whatever can be seen must be the same."""

    drafts = Bundle("drafts")

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.store = place.store
        self.files: dict[str, bytes] = {}
        self.written: dict[int, bytes] = {}
        # A directory that is listed must exist, and object stores have no empty ones.
        self.publish_replacing(self.begin(), "a")

    @rule(target=drafts)
    def begin(self) -> Draft:
        draft = self.store.draft(self.place.directory, "draft")
        self.written[id(draft)] = b""
        return draft

    @rule(draft=drafts, content=CONTENTS)
    def write(self, draft: Draft, content: bytes) -> None:
        if id(draft) in self.written:
            draft.write(content)
            self.written[id(draft)] += content

    @rule(draft=consumes(drafts), name=NAMES)
    def publish_replacing(self, draft: Draft, name: str) -> None:
        whole = self._make_room(name)
        draft.publish(whole, exclusive=False)
        self.files[whole] = self.written.pop(id(draft))

    @rule(target=drafts, draft=consumes(drafts), name=NAMES)
    def publish_exclusively(self, draft: Draft, name: str) -> Any:
        whole = self._make_room(name)
        if whole in self.files:
            with pytest.raises(ObjectExistsError):
                draft.publish(whole, exclusive=True)
            return draft
        draft.publish(whole, exclusive=True)
        self.files[whole] = self.written.pop(id(draft))
        return self.begin()

    @rule(draft=consumes(drafts))
    def discard(self, draft: Draft) -> None:
        draft.discard()
        del self.written[id(draft)]

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        whole = self.place.name(name)
        if name == "a":
            return
        if whole not in self.files:
            with pytest.raises(ObjectNotFoundError):
                self.store.delete(whole)
            return
        self.store.delete(whole)
        del self.files[whole]

    @rule(name=NAMES, start=st.integers(0, 300), length=st.integers(0, 300))
    def read(self, name: str, start: int, length: int) -> None:
        whole = self.place.name(name)
        if whole not in self.files:
            with pytest.raises(ObjectNotFoundError):
                self.store.entry(whole)
            return
        content = self.files[whole]
        assert self.place.read(whole) == content
        assert self.store.entry(whole).size == len(content)
        start = min(start, len(content))
        length = min(length, len(content) - start)
        file = self.store.open(whole)
        assert file.read_ranges([(start, length), (0, 0)]) == [content[start : start + length], b""]
        file.close()

    @rule()
    def clear_dead_drafts(self) -> None:
        assert list(self.store.clear_dead_drafts(self.place.directory)) == []

    @invariant()
    def what_is_visible_is_what_was_published(self) -> None:
        sizes = {name: len(content) for name, content in self.files.items()}
        everything = self.place.listed(recursive=True)
        assert {name: entry.size for name, entry in everything.items()} == sizes
        here = {n for n in sizes if "/" not in n.removeprefix(f"{self.place.directory}/")}
        assert set(self.place.listed()) == here

    def teardown(self) -> None:
        """Leave nothing: the drafts that are still open were never published."""
        for name in self.files:
            self.store.delete(name)
        self.files.clear()

    def _make_room(self, name: str) -> str:
        """Return the whole name; publishing does not make directories, drafting in them does."""
        whole = self.place.name(name)
        self.store.draft(whole.rpartition("/")[0], "x").discard()
        return whole
