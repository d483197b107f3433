"""What records hold: every field with its types, borders and examples, and what changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.index.profile._document import document_of
from penstock.index.profile._seen import Seen
from penstock.index.profile._state import decode_state, encode_state
from penstock.index.profile._tree import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray


class Profile:
    """What is known of some records; of parts of them, put together, the same as of all.

    `is_text` says that types were read from plain text (CSV), where a number among words is none.

    >>> profile = Profile()
    >>> profile.add([{"price": 1, "tags": ["a"]}, {"price": None, "tags": []}], 0)
    >>> [(field["path"], field["type"], field["nulls"]) for field in profile.document()["fields"]]
    [('price', 'int', 1), ('tags', 'list', 0), ('tags[]', 'string', 0)]
    """

    def __init__(self, *, is_text: bool = False) -> None:
        self.is_text = is_text
        self.records = 0
        self._root = Place()

    def add(self, records: Sequence[object], first: int) -> None:
        """Take records, the first of which has this number and the others those that follow.

        They are plain values as JSON or Arrow gives them; `UNREADABLE` stands for what is none.
        """
        if len(records):
            where = np.arange(first, first + len(records))
            self._root.add(records, where)
            self.records += len(records)

    def add_columns(
        self, columns: Mapping[str, Sequence[object]], numbers: NDArray[np.int64]
    ) -> None:
        """Take records of these numbers as columns: each has all the fields, in this order."""
        if len(numbers):
            seen = self._root.types.setdefault("object", Seen())
            seen.number(len(numbers), int(numbers.min()), int(numbers.max()))
            self._root.add_columns(dict(columns), numbers, 0)
            self.records += len(numbers)

    def merge(self, other: Profile, shift: int = 0) -> None:
        """Take what another knows of other records, whose numbers are `shift` higher here."""
        self._root.merge(other._root, shift)
        self.records += other.records
        self.is_text = self.is_text or other.is_text

    def document(self) -> dict[str, Any]:
        """Return what `profile.json` holds: plain JSON."""
        return document_of(self._root, self.records, is_text=self.is_text)

    def to_bytes(self) -> bytes:
        """Return all that is known, to go on with later; not for reading."""
        return encode_state(self._root, self.records, is_text=self.is_text)

    @classmethod
    def from_bytes(cls, data: bytes) -> Profile:
        """Return what `to_bytes` was made of; `ValueError` for anything else."""
        profile = cls()
        profile._root, profile.records, profile.is_text = decode_state(data)
        return profile


def profile_records(batches: Iterable[Sequence[object]]) -> Profile:
    """Return the profile of records that come in batches, numbered from 0.

    >>> profile_records([[{"a": 1}], [{"a": "x"}]]).document()["drift"][0]["text"]
    'a is int in record 0, and string from record 1 on'
    """
    profile = Profile()
    for batch in batches:
        profile.add(batch, profile.records)
    return profile
