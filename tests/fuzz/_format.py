"""What a format on disk says of itself: a sample, the doors that read it, and what is right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from click.testing import CliRunner

from penstock.cli._app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Values = Any
"""Plain Python values; two of them are the same where their `repr` is, so NaN is NaN."""

CHECK = "check"
"""The door that answers with an exit code: 0 says that nothing is wrong."""


class Refused(Exception):  # noqa: N818 (an answer, not a failure)
    """The reference reader finds fault with the bytes, too."""


class UnexpectedError(Exception):
    """The command told of an error that is none of ours."""


class Door(NamedTuple):
    """One way to read a sample."""

    name: str
    read: Callable[[], Values]
    shown: Callable[[Any], Values] = lambda reference: reference
    """What it has to show of the reference's values."""


class Format(ABC):
    """One format; a child process makes its sample once and damages it again and again."""

    name: ClassVar[str]
    rounds: ClassVar[tuple[int, int]]
    """Mutations in `make test` and in `make test-long`."""
    always: ClassVar[int] = 1
    """Doors, the first ones, that every mutation passes."""
    more: ClassVar[int] = 1
    """Doors of the others that it passes, by chance."""

    check_tells: ClassVar[bool] = True
    """Whether what does not open is something that `penstock check` has to find."""

    @abstractmethod
    def make(self, folder: Path) -> None:
        """Write a small valid sample."""

    @abstractmethod
    def doors(self, folder: Path, damaged: str) -> list[Door]:
        """Return the ways to read that part of the sample in which a file was damaged."""

    def part(self, damaged: str) -> str:
        """Return by what the values of doors differ: the first folder, or file."""
        return damaged.partition("/")[0]

    def is_metadata(self, name: str) -> bool:
        """Whether a file may become a pipe, a link or a folder, too."""
        return name.endswith((".json", ".ndjson")) or "index/" in name

    def targets(self, files: list[str]) -> list[str]:
        """Return the files to damage, those that matter more than once."""
        return files

    def reference(self, folder: Path, damaged: str) -> Values:
        """Return what a reader that is not ours finds now; `Refused` where it finds fault."""
        raise NotImplementedError

    def difference(
        self, seen: Mapping[str, Values], sound: Mapping[str, Values], damaged: str
    ) -> str | None:
        """Return what is wrong with what doors returned, where there is no reference.

        `sound` is what they return of the sample as it was made. In files of our own a changed
        number is another number; what must hold is that doors agree with each other.
        """
        return None


def command(*arguments: object) -> int:
    """Run the `penstock` command in this process; return its exit code."""
    done = CliRunner(catch_exceptions=False).invoke(app, [*map(str, arguments)])
    if "Please report it" in done.stderr:
        raise UnexpectedError(done.stderr.strip()[-300:])
    return done.exit_code


def check(folder: Path) -> Door:
    """Return the door of `penstock check`."""
    return Door(CHECK, lambda: command("check", folder, "--workers", 0))
