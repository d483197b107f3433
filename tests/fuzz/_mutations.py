"""Damage done to bytes: what disks, copies and strangers do to files, drawn from a seed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_SIZES = (1, 2, 4, 8)
_NEAR = 64
"""Bytes that count as the head, or the tail, of a file."""
_FAR = (0, 1, 2, 255, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1)
_SNIPPETS = (
    b"\n", b"\r\n", b"\r", b"\n\n", b" \t\n", b"\0", b"\xff", b"\xe9", b"\xef\xbb\xbf", b"\xc3",
    b'"', b'""', b"\\", b",", b":", b"{", b"}", b"[", b"]", b"{}", b"[]\n", b"null", b"NaN",
    b"-Infinity", b"1e999", b"-0.0", b"0x10", b"true", b"9" * 30, b"1." + b"3" * 40, b"1e-400",
    b"\\ud800", b"\\u0000", b'{"id":', b"[" * 3000, b'{"a":' * 600, b"../", b"/", b" " * 70,
    b"7" * 5000,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**30,
    -(2**63), 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "a", "1", "é", "\0", "\n", "\ud800",
    "..", ".", "../x", "../../outside/keep.txt", "\1outside", "/dev/zero", "a/b", "s3://b/k",
    "x" * 5000, "uint16", "int64", "list<int8>", "zstd", [], {}, [[]], [0], [1, 2], [[0, 1]],
    [None], {"a": 1}, {"path": "../x"},
)  # fmt: skip


OUTSIDE = b"\\u0001outside"
"""In a document: the path of a file that lies elsewhere, and that nothing may touch."""


def mutated(data: bytes, chance: Random, *, is_json: bool, is_text: bool) -> tuple[bytes, str]:
    """Return other bytes, and in a few words what was done to them."""
    told = []
    for _ in range(chance.choice((1, 1, 1, 1, 1, 1, 2, 3))):
        if is_json and chance.random() < 0.7:
            data, what = _other_document(data, chance)
        else:
            ways = _TEXT if is_text else _BINARY
            way = chance.choice(ways)
            data, what = way(data, chance)
        told.append(what)
    return data, "; ".join(told)


def _flip_bit(data: bytes, chance: Random) -> tuple[bytes, str]:
    if not data:
        return _append(data, chance)
    at, bit = _place(data, chance), 1 << chance.randrange(8)
    return _put(data, at, bytes([data[at] ^ bit])), f"bit {bit} at {at} flipped"


def _set_byte(data: bytes, chance: Random) -> tuple[bytes, str]:
    if not data:
        return _append(data, chance)
    at, value = _place(data, chance), chance.choice((0, 255, chance.randrange(256)))
    return _put(data, at, bytes([value])), f"byte {at} is {value}"


def _set_integer(data: bytes, chance: Random) -> tuple[bytes, str]:
    """Replace an aligned little-endian integer by an edge, or by a neighbour of what it was."""
    size = chance.choice(_SIZES)
    if len(data) < size:
        return _append(data, chance)
    at = _place(data, chance) // size * size
    if chance.random() < 0.3:  # Not everything is aligned from the front.
        at = _place(data, chance)
    at = min(len(data) - size, at)
    old = int.from_bytes(data[at : at + size], "little")
    near = (
        old + 1,
        old - 1,
        old * 2,
        old // 2,
        len(data),
        len(data) + 1,
        old + (1 << 8 * size - 1),
    )
    value = chance.choice((*_FAR, *near, -1, -2)) % (1 << 8 * size)
    return _put(data, at, value.to_bytes(size, "little")), f"int{8 * size} at {at}: {old} → {value}"


def _truncate(data: bytes, chance: Random) -> tuple[bytes, str]:
    keep = chance.randrange(len(data) + 1)
    if chance.random() < 0.3:
        keep = max(0, len(data) - chance.randrange(1, 9))
    return data[:keep], f"cut off after {keep} of {len(data)}"


def _delete(data: bytes, chance: Random) -> tuple[bytes, str]:
    start, stop = _range(data, chance)
    return data[:start] + data[stop:], f"{start}:{stop} removed"


def _repeat(data: bytes, chance: Random) -> tuple[bytes, str]:
    start, stop = _range(data, chance)
    return data[:stop] + data[start:stop] + data[stop:], f"{start}:{stop} twice"


def _swap(data: bytes, chance: Random) -> tuple[bytes, str]:
    a, b = _range(data, chance)
    c, d = _range(data, chance)
    if (c, d) < (a, b):
        (a, b), (c, d) = (c, d), (a, b)
    c = max(b, c)
    d = max(c, d)
    changed = data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
    return changed, f"{a}:{b} and {c}:{d} swapped"


def _insert(data: bytes, chance: Random) -> tuple[bytes, str]:
    at, more = chance.randrange(len(data) + 1), _snippet(chance)
    return data[:at] + more + data[at:], f"{more[:20]!r} ({len(more)}) at {at} inserted"


def _overwrite(data: bytes, chance: Random) -> tuple[bytes, str]:
    start, stop = _range(data, chance)
    more = chance.choice((b"\0", b"\xff", b"\n", b" "))
    return data[:start] + more * (stop - start) + data[stop:], f"{start}:{stop} is {more!r}"


def _append(data: bytes, chance: Random) -> tuple[bytes, str]:
    more = _snippet(chance)
    return data + more, f"{more[:20]!r} ({len(more)}) appended"


def _empty(_: bytes, __: Random) -> tuple[bytes, str]:
    return b"", "emptied"


def _place(data: bytes, chance: Random) -> int:
    """Return a place in data that is not empty; heads and tails say what lies between them."""
    near = min(len(data), _NEAR)
    if chance.random() < 0.4:
        return chance.choice((chance.randrange(near), len(data) - 1 - chance.randrange(near)))
    return chance.randrange(len(data))


def _put(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def _range(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    most = chance.choice((4, 16, 64, len(data)))
    return start, min(len(data), start + chance.randrange(most + 1))


def _snippet(chance: Random) -> bytes:
    if chance.random() < 0.2:
        return chance.randbytes(chance.choice((1, 4, 8, 24, 100)))
    return chance.choice(_SNIPPETS)


_BINARY: tuple[Callable[[bytes, Random], tuple[bytes, str]], ...] = (
    *[_flip_bit] * 5, *[_set_byte] * 4, *[_set_integer] * 8, *[_truncate] * 2, _delete, _repeat,
    _swap, _insert, _overwrite, _append, _empty,
)  # fmt: skip
_TEXT = (
    *[_flip_bit] * 3, *[_set_byte] * 3, *[_insert] * 8, *[_truncate] * 2, *[_delete] * 2, _repeat,
    _swap, _overwrite, _append, _empty,
)  # fmt: skip


def _other_document(data: bytes, chance: Random) -> tuple[bytes, str]:
    """Replace, remove, double or rename one value of a JSON document, or of one of its lines."""
    lines = data.splitlines(keepends=True)
    at = chance.randrange(len(lines)) if lines else 0
    whole = len(lines) > 1 and data.lstrip()[:1] == b"{" and _parsed(data) is not None
    text = data if whole or not lines else lines[at]
    document = _parsed(text)
    if document is None:
        return _insert(data, chance)
    holder = [document]
    try:
        told = _change(holder, chance)
        changed = json.dumps(holder[0]).encode()
    except RecursionError:
        return _insert(data, chance)
    deep = chance.choice((100, 1000, 100_000))
    changed = changed.replace(b'"\\u0001deep"', b"[" * deep + b"]" * deep)
    changed = changed.replace(b'"\\u0001digits"', b"9" * chance.choice((400, 5000)))
    if whole or not lines:
        return changed, told
    return b"".join([*lines[:at], changed, b"\n", *lines[at + 1 :]]), f"line {at}: {told}"


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _change(holder: list[Any], chance: Random) -> str:
    """Change one of the values below a holder in place."""
    places: list[tuple[Any, Any, str]] = []
    _collect(holder, "", places)
    parent, key, path = chance.choice(places)
    way = chance.random()
    if way < 0.12 and isinstance(parent, dict):
        del parent[key]
        return f"{path} removed"
    if way < 0.18 and isinstance(parent, list) and parent is not holder:
        parent.insert(key, parent[key])
        return f"{path} doubled"
    if way < 0.22 and isinstance(parent, dict):
        name = chance.choice(("", "x", "..", "path", "type"))
        parent[name] = parent.pop(key)
        return f"{path} renamed to {name!r}"
    value = _other_value(parent[key], chance)
    if way < 0.4 and len(places) > 1:
        other, its_key, _ = chance.choice(places[1:])
        value = json.loads(json.dumps(other[its_key]))
    parent[key] = value
    return f"{path} = {value!r:.60}"


def _collect(value: Any, path: str, places: list[tuple[Any, Any, str]]) -> None:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in list(inside):
        name = f"{path}.{key}" if path or isinstance(value, dict) else "$"
        places.append((value, key, name))
        if isinstance(one, dict | list):
            _collect(one, name, places)


def _other_value(old: Any, chance: Random) -> Any:
    if isinstance(old, int | float) and abs(old) < 1e300 and chance.random() < 0.5:
        near = (old + 1, old - 1, -old, old * 2, old // 2, old + 0.5, str(old), [old], old * 10**9)
        return chance.choice(near)
    if isinstance(old, str) and chance.random() < 0.4:
        near = (
            old + "x",
            old[:-1],
            "../" + old,
            "/" + old,
            old.upper(),
            [old],
            old + "\0",
            old * 2,
        )
        return chance.choice(near)
    if chance.random() < 0.06:
        return chance.choice(("\1deep", "\1digits"))
    return chance.choice(_VALUES)
