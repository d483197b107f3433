"""Random-looking numbers that are a function of a key and a counter."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def keys(purpose: str, *numbers: int, count: int = 1) -> list[int]:
    """Return 64-bit keys (at most 8) that depend on a purpose and on integers of any size.

    >>> keys("example", 1, -2) == keys("example", 1, -2) != keys("example", 1, 2)
    True
    """
    text = " ".join([purpose, *(str(int(number)) for number in numbers)])
    digest = hashlib.blake2b(text.encode(), digest_size=8 * count).digest()
    return [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 8 * count, 8)]


def mixed(counters: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Return uint64 numbers that look independent and uniform, one for each counter (uint64).

    Under one key different counters give different numbers.

    >>> import numpy as np
    >>> bool(
    ...     (
    ...         mixed(np.arange(4, dtype=np.uint64), key=1)
    ...         == mixed(np.arange(4, dtype=np.uint64), key=2)
    ...     ).any()
    ... )
    False
    """
    # Neighbouring counters are spread by the golden ratio first; then twice a shift, which brings
    # the high bits down, and a multiplication, which brings the low ones up (splitmix64).
    state = counters * np.uint64(0x9E3779B97F4A7C15)
    state += np.uint64(key)
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state
