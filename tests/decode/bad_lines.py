"""Ways to hear of bad lines in tests."""

from __future__ import annotations


class Heard(list[tuple[int, bytes, Exception]]):
    """An `on_bad` that keeps what it is told."""

    def __call__(self, index: int, raw: bytes, why: Exception) -> None:
        self.append((index, raw, why))

    @property
    def indices(self) -> list[int]:
        return [index for index, _, _ in self]


def never(index: int, raw: bytes, why: Exception) -> None:
    """Fail: no line of this text is bad."""
    raise AssertionError(f"line {index}, {raw!r}, counted as bad") from why
