"""Numbers of as many bytes as they need: seven bits in each, the lowest first."""

from __future__ import annotations

_MORE = 0x80
_MOST_BITS = 64


def varint(data: bytes, at: int) -> tuple[int, int]:
    r"""Return the number at a place, and the place behind it; `IndexError` where it is cut off.

    >>> varint(b"\x96\x01\x07", 0), varint(b"\x96\x01\x07", 2)
    ((150, 2), (7, 3))
    """
    found = shift = 0
    while (byte := data[at]) >= _MORE:
        found |= (byte - _MORE) << shift
        at, shift = at + 1, shift + 7
        if shift >= _MOST_BITS:
            raise ValueError(f"an endless number before byte {at:,}")
    return found | byte << shift, at + 1


def signed(number: int) -> int:
    """Return a number whose last bit is its sign.

    >>> [signed(number) for number in range(5)]
    [0, -1, 1, -2, 2]
    """
    return number >> 1 ^ -(number & 1)
