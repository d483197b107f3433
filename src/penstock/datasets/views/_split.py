"""Disjoint parts of a source that stay what they are when data is appended."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets._arrow import id_ranges, read_fields, refuse_unknown
from penstock.datasets.views._rule_views import Rule, RuleView
from penstock.datasets.views._views import fingerprint_of
from penstock.decode import batches_of_one_type, uuids_as_texts
from penstock.errors import OptionError
from penstock.order import keys, mixed

if TYPE_CHECKING:
    from penstock.datasets._source import Source

_VERSION = 1
"""Raised whenever the same arguments would divide the same records otherwise."""
_KEPT_FROM = 1 << 20
"""Records from which on numbers that cost no reading are kept as well: to share the memory."""
_TOLERANCE = 1e-9
is_ = pa.types


class Parts(tuple["Source", ...]):  # noqa: SLOT001 (a tuple has no slots to give)
    """The views of a split, in the order named, each also an attribute of its name."""

    names: tuple[str, ...]

    def __new__(cls, views: Iterable[Source], names: Iterable[str]) -> Self:
        self = super().__new__(cls, views)
        self.names = tuple(names)
        return self

    def __getattr__(self, name: str) -> Source:
        if name != "names" and name in self.names:
            return self[self.names.index(name)]
        raise AttributeError(f"there is no part {name!r}", name=name, obj=self)

    def __reduce__(self) -> tuple[type[Parts], tuple[tuple[Source, ...], tuple[str, ...]]]:
        return Parts, (tuple(self), self.names)


class SplitPart(RuleView):
    """One part of a split."""


def split(
    source: Source,
    by: str | None,
    seed: int,
    shares: Mapping[str, float],
    kind: type[SplitPart] = SplitPart,
) -> Parts:
    """Return views of disjoint parts that cover all records, one a share, in the order named.

    A record goes where a hash of its number falls, or a hash of its field `by`; all records
    without that field, or with null in it, go together. A number and the text of that number are
    one key, so a field that turns from numbers to strings in later data keeps its parts.
    """
    bounds = _bounds(shares)
    division = Division(source, by, operator.index(seed), bounds)
    parts = Parts([kind(source, division, number) for number in range(len(shares))], shares)
    if by is not None:
        # A field that is not there, or is no key, is an error of this call and not of a later one.
        len(parts[0])
    return parts


def _bounds(shares: Mapping[str, object]) -> tuple[int, ...]:
    """Return the hashes at which each part but the first begins."""
    if not shares:
        raise OptionError("a split needs shares that sum to 1: split(train=0.9, val=0.1)")
    sizes: list[float] = []
    for name, share in shares.items():
        if not isinstance(share, int | float) or not 0 < share < math.inf:
            raise OptionError(f"{name}={share!r}: a share is a positive number, 1 for everything.")
        sizes.append(float(share))
    total = math.fsum(sizes)
    if abs(total - 1) > _TOLERANCE:
        named = ", ".join(f"{name}={share}" for name, share in shares.items())
        raise OptionError(f"the shares {named} sum to {total:.12g}: they must sum to 1.")
    upto = [math.fsum(sizes[:count]) for count in range(1, len(shares))]
    return tuple(min(round(bound * 2**64), 2**64 - 1) for bound in upto)


class Division(Rule):
    """Divides records by a hash of their number or of a field."""

    def __init__(self, source: Source, by: str | None, seed: int, bounds: tuple[int, ...]) -> None:
        super().__init__(source)
        self._by, self._seed, self._bounds = by, seed, bounds
        self.parts = len(bounds) + 1
        self.is_cheap = by is None and self.length < _KEPT_FROM

    def fingerprint(self, part: int, source: str) -> str:
        how = (_VERSION, self._by is not None, self._seed, part, self._bounds)
        return fingerprint_of("split", source, self._by or "", *map(str, how))

    def _search(self) -> list[np.ndarray]:
        bounds = np.array(self._bounds, np.uint64)
        runs: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in range(len(bounds) + 1)]
        start = 0
        for hashes in self._hashes():
            parts = np.searchsorted(bounds, hashes, "right")
            for part, run in enumerate(runs):
                run.append(start + np.flatnonzero(parts == part))
            start += len(hashes)
        return [np.concatenate(run) for run in runs]

    def _hashes(self) -> Iterator[np.ndarray]:
        """Yield a hash (uint64) of every record's number or key, many at a time, in order."""
        (key,) = keys("split", _VERSION, self._seed)
        if self._by is None:
            for ids in id_ranges(0, self.length):
                yield mixed(ids.astype(np.uint64), key)
            return
        is_known = False
        for columns in read_fields(self.source, [self._by], self.length):
            array = columns.column(0)
            is_known = is_known or array.null_count < len(array)
            hashes = np.empty(len(array), np.uint64)
            for rows, part in batches_of_one_type(columns):
                hashes[rows] = key_hashes(part.column(0), key, self._by)
            yield hashes
        if self.length and not is_known:
            refuse_unknown(self.source, self._by)


def key_hashes(array: pa.Array, key: int, path: str) -> np.ndarray:
    """Return a hash (uint64) of every value of a column; `path` names it in errors.

    The text of a value counts: 17, 17.0 and "17" are one key, and null is another.

    >>> import pyarrow as pa
    >>> whole, text = pa.array([17, None, 17]), pa.array(["17", None, ""])
    >>> (key_hashes(whole, 1, "user") == key_hashes(text, 1, "user")).tolist()
    [True, True, False]
    """
    encoded = _plain_keys(uuids_as_texts(array), path).dictionary_encode()
    own = key.to_bytes(8, "little")
    hashes = [_hash(_key_text(value).encode(), own) for value in _key_values(encoded.dictionary)]
    # Null stands at the end, where a number that is null is made to point.
    hashes.append(_hash(b"\0null", own))
    places = pc.fill_null(encoded.indices, len(hashes) - 1).to_numpy(zero_copy_only=False)
    found: np.ndarray = np.array(hashes, np.uint64)[places]
    return found


def _plain_keys(array: pa.Array, path: str) -> pa.Array:
    if is_.is_dictionary(array.type):
        return _plain_keys(array.dictionary_decode(), path)
    if is_.is_null(array.type) or is_.is_string_view(array.type):
        return array.cast(pa.string())
    if is_.is_nested(array.type):
        raise OptionError(
            f"by={path!r} is {array.type}: records are kept together by one value. "
            "Name a field inside it, as in by='user.id'."
        )
    return array


def _key_values(distinct: pa.Array) -> list[object]:
    type_ = distinct.type
    if is_.is_float16(type_) or is_.is_float32(type_):
        distinct = distinct.cast(pa.float64())
    elif is_.is_temporal(type_) or is_.is_decimal(type_):
        # As text, because Python's moments know no nanoseconds.
        distinct = distinct.cast(pa.string())
    try:
        values: list[object] = distinct.to_pylist()
    except UnicodeDecodeError:  # Parquet files may hold texts that are no UTF-8.
        texts: list[bytes | None] = distinct.cast(pa.large_binary()).to_pylist()
        values = [None if text is None else text.decode("utf-8", "replace") for text in texts]
    return values


def _key_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str) else repr(value)


def _hash(text: bytes, key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest(), "little")
