"""Checks of records while they are found, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from penstock.index._meta import Meta
    from penstock.index.profile._profile import Profile


class Checks(msgspec.Struct, frozen=True):
    """The checks of every record while it is found."""

    validate: bool = False
    """Read it, and set it aside if that fails."""
    profile: bool = False
    """Profile it."""
    max_line_bytes: int | None = None
    """Set longer ones aside."""

    def __bool__(self) -> bool:
        return self.validate or self.profile

    def check(self) -> None:
        """Raise `OptionError` for invalid options."""
        most = self.max_line_bytes
        if most is None:
            return
        if type(most) is not int or most <= 0:
            raise OptionError(
                f"max_line_bytes={most!r}: expected a number of bytes above 0, or None."
            )
        if not self.validate:
            raise OptionError(
                f"max_line_bytes={most:,} sets lines aside, which only validate=True (--validate) "
                "does. Give both."
            )

    def on_top_of(self, old: Meta, folder: str) -> Checks:
        """Return the checks of an update: those with which the index was built."""
        for asked, was, option in (
            (self.validate, old.validated, "validate"),
            (self.profile, old.profiled, "profile"),
        ):
            if asked and not was:
                raise OptionError(
                    f"the index in {folder} was built without {option}=True, and an update reads "
                    f"only what is new. Build it anew: --overwrite --{option} (overwrite=True)."
                )
        if self.max_line_bytes not in (None, old.max_line_bytes):
            raise OptionError(
                f"max_line_bytes={self.max_line_bytes!r}: the index in {folder} was built with "
                f"{old.max_line_bytes!r}, and an update reads only what is new. Build it anew: "
                "--overwrite (overwrite=True)."
            )
        return Checks(old.validated, old.profiled, old.max_line_bytes)


class Look(NamedTuple):
    """Where the records of a unit go."""

    checks: Checks
    profile: Profile | None = None
    """Adds them up."""
    on_rows: Callable[[NDArray[np.int64]], object] = lambda _: None
    """Called with offset and bytes of some of them: int64[k, 2]."""


class Aside(msgspec.Struct, frozen=True, array_like=True):
    """A line that is no record."""

    newlines: int
    """Newlines before it in its part of the file."""
    offset: int
    size: int
    reason: str


class PartFound(msgspec.Struct):
    """The result of a part of a file, without its rows."""

    records: int
    aside: list[Aside]
    newlines: int
    frames: list[tuple[int, int, int, int]] = []
    facts: dict[str, Any] = {}


class UnitFound(msgspec.Struct):
    """The results of the parts of a unit, in order."""

    parts: list[PartFound]
    profile: bytes | None
    """State of the profile of their records, numbered from 0."""
