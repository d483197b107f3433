"""The engine of a pass, whose worker processes the next pass may have as well."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import finalize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.loading._fetch import Fetch
    from penstock.loading.engines._choice import Workers
    from penstock.loading.engines._engines import Engine
    from penstock.loading.engines._processes import InProcesses

    Idle = list[tuple[Workers, Fetch, InProcesses]]


class KeptWorkers:
    """Worker processes between two passes of a loader; a copy of it begins without any."""

    def __init__(self, *, are_kept: bool) -> None:
        self._are_kept = are_kept
        self._closes = 0
        """How often `close` was called: workers of a pass that began before are not kept."""
        self._idle: Idle = []
        self._end = finalize(self, _end, self._idle)

    def __reduce__(self) -> tuple[object, ...]:
        return _anew, (self._are_kept,)

    @contextmanager
    def engine(self, workers: Workers, fetch: Fetch, *, is_mixed: bool) -> Iterator[Engine]:
        """Lend the engine of a pass: workers of the one before, where they read the same.

        They have the reader and the recipe as these were when they started. A pass that begins
        while another goes on has workers of its own. An error ends them.
        """
        closes, is_over = self._closes, False
        engine: Engine | None = self._fitting(workers, fetch)
        if engine is None:
            engine = workers.engine(fetch, is_mixed=is_mixed)
        try:
            yield engine
            is_over = True
        except GeneratorExit:
            is_over = True
            raise
        finally:
            if is_over and closes == self._closes:
                self._give_back(workers, fetch, engine)
            else:
                engine.close()

    def _fitting(self, workers: Workers, fetch: Fetch) -> InProcesses | None:
        for chosen, known, engine in _taken(self._idle):
            is_same = chosen == workers and known.reader == fetch.reader
            if is_same and known.recipe is fetch.recipe and engine.is_ready():
                return engine
            engine.close()
        return None

    def _give_back(self, workers: Workers, fetch: Fetch, engine: Engine) -> None:
        """Keep the workers of a pass that ended; end them where that was not asked for."""
        if not self._are_kept or workers.kind != "processes" or not self._end.alive or self._idle:
            engine.close()
            return
        engine.rest()  # type: ignore[attr-defined] # the engine of this kind
        self._idle.append((workers, fetch, engine))  # type: ignore[arg-type]

    def close(self) -> None:
        """End the workers that wait for a pass; those of a pass under way end with it."""
        self._closes += 1
        _end(self._idle)


def _anew(are_kept: bool) -> KeptWorkers:  # noqa: FBT001 (as pickle calls it)
    return KeptWorkers(are_kept=are_kept)


def _taken(idle: Idle) -> Iterator[tuple[Workers, Fetch, InProcesses]]:
    """Take all out, each for one of the threads that may do so at a time."""
    with suppress(IndexError):
        while True:
            yield idle.pop()


def _end(idle: Idle) -> None:
    for *_, engine in _taken(idle):
        engine.close()
