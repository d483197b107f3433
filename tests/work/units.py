"""Units of all tempers; workers import them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.work import PublishedUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.storage import Draft


@dataclass(frozen=True)
class Writing:
    """Publishes a file that names the processes which worked for it, one a line."""

    folder: str
    name: str
    size: int = 10

    def __str__(self) -> str:
        return f"{self.name} of {self.folder}"

    @property
    def output(self) -> Path:
        return Path(self.folder) / f"{self.name}.done"

    @property
    def tries(self) -> Path:
        """One line a process that began."""
        return Path(self.folder) / f"{self.name}.tries"

    def begun(self) -> list[int]:
        """Return the processes that began, oldest first."""
        text = self.tries.read_text() if self.tries.exists() else ""
        return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def is_done(self) -> bool:
        return self.output.exists()

    def run(self, advance: Callable[[int], object]) -> None:
        with self.tries.open("a") as file:
            file.write(f"{os.getpid()}\n")
        advance(self.size // 3)
        self.do(advance)
        self.publish()

    def do(self, advance: Callable[[int], object]) -> None:
        advance(self.size // 3)

    def publish(self) -> None:
        self.tries.replace(self.output)


@dataclass(frozen=True)
class Waiting(Writing):
    """Waits until a file appears."""

    def do(self, advance: Callable[[int], object]) -> None:
        while not (Path(self.folder) / "go").exists():
            time.sleep(0.01)


@dataclass(frozen=True)
class Meeting(Writing):
    """Goes on until another process has begun one, too, and tells how far it is all the while."""

    def do(self, advance: Callable[[int], object]) -> None:
        while len({*self._processes()}) == 1:
            advance(0)
            time.sleep(0.01)
        for _ in range(50):  # Long enough for what the other one has to say.
            advance(0)
            time.sleep(0.01)

    def _processes(self) -> Iterator[int]:
        for path in [*Path(self.folder).glob("*.tries"), *Path(self.folder).glob("*.done")]:
            with suppress(FileNotFoundError):
                yield from map(int, path.read_text().split())


@dataclass(frozen=True)
class Deadly(Writing):
    """Kills the first processes that do it."""

    deaths: int = 1
    number: int = signal.SIGKILL

    def do(self, advance: Callable[[int], object]) -> None:
        if len(self.begun()) <= self.deaths:
            os.kill(os.getpid(), self.number)
            time.sleep(60)


@dataclass(frozen=True)
class Leaving(Writing):
    """Ends the process that does it by itself."""

    code: int = 0

    def do(self, advance: Callable[[int], object]) -> None:
        os._exit(self.code)


@dataclass(frozen=True)
class DyingLate(Writing):
    """Kills its process when all is done."""

    def publish(self) -> None:
        super().publish()
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Survived(Writing):
    """Dies, but a child of it holds open what it had open."""

    def do(self, advance: Callable[[int], object]) -> None:
        if len(self.begun()) == 1:
            child = os.fork()
            if not child:
                time.sleep(60)
                os._exit(0)
            (Path(self.folder) / "child").write_text(f"{child}")
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Counting(Writing):
    """Tells of every single thing it does."""

    def do(self, advance: Callable[[int], object]) -> None:
        for _ in range(self.size - self.size // 3):
            advance(1)


@dataclass(frozen=True)
class Telling(Writing):
    """Prints, and tells what its process is like."""

    def do(self, advance: Callable[[int], object]) -> None:
        print("from a unit")
        os.write(1, b"from below\n")
        sys.stderr.write(f"main={sys.modules['__main__'].__dict__.get('SECRET')}\n")
        sys.stderr.write(f"optimize={sys.flags.optimize}\n")


class OddError(Exception):
    """Of a user's module."""


class TwoWordsError(Exception):
    """Does not come back from a pickle."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


class FormedError(Exception):
    """Makes its text from what its constructor set, and does not come back from a pickle."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)
        self.why = why

    def __str__(self) -> str:
        return f"because {self.why}"


class MuteError(Exception):
    """Cannot even say what it is."""

    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __str__(self) -> str:
        raise RuntimeError("no words")


def odd() -> None:
    try:
        _ = {}["missing"]  # type: ignore[var-annotated]
    except KeyError as why:
        error = OddError("too odd")
        error.add_note("In truth, a note")
        raise error from why


def two_words() -> None:
    raise TwoWordsError("odd", "by nature")


def formed() -> None:
    raise FormedError("odd", "of nature")


def mute() -> None:
    raise MuteError


def unknown() -> None:
    class InnerError(Exception):
        pass

    raise InnerError("not known elsewhere")


def key() -> None:
    raise KeyError("missing")


def leave() -> None:
    raise SystemExit(3)


@dataclass(frozen=True)
class Failing(Writing):
    """Raises."""

    how: str = "odd"

    def do(self, advance: Callable[[int], object]) -> None:
        globals()[self.how]()


@dataclass(frozen=True)
class FailingElsewhere(Writing):
    """Raises in any process but one, when that has begun something, too."""

    spared: int = 0

    def do(self, advance: Callable[[int], object]) -> None:
        if os.getpid() != self.spared:
            time.sleep(0.05)
            odd()


@dataclass(frozen=True)
class Unsendable(Writing):
    """Holds what does not pickle."""

    held: Any = None


@dataclass(frozen=True)
class Summing(PublishedUnit):
    """Publishes the sum of a range of numbers; its first process is killed if `deadly` names a file
    that does not exist yet."""

    start: int
    stop: int
    deadly: str = ""

    def __str__(self) -> str:
        return f"numbers {self.start} to {self.stop}"

    @property
    def size(self) -> int:
        return self.stop - self.start

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        advance(self.size // 2)
        draft.write(b"half of it")
        if self.deadly and not Path(self.deadly).exists():
            Path(self.deadly).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        draft.write(f" {sum(range(self.start, self.stop))}".encode())
