"""The engine of a pass, whose worker processes the next pass may have as well."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import finalize

if TYPE_CHECKING:
    from penstock.loading._fetch import Fetch
    from penstock.loading.engines._choice import Workers
    from penstock.loading.engines._engines import Engine
    from penstock.loading.engines._processes import InProcesses


class KeptWorkers:
    """Worker processes between two passes of a loader; a copy of it begins without any."""

    def __init__(self, *, are_kept: bool) -> None:
        self._are_kept = are_kept
        self._idle: list[tuple[Workers, Fetch, InProcesses]] = []
        self._end = finalize(self, _end, self._idle)

    def __reduce__(self) -> tuple[object, ...]:
        return _anew, (self._are_kept,)

    def engine(self, workers: Workers, fetch: Fetch, *, is_mixed: bool) -> LentEngine:
        """Return the engine of a pass: workers of the one before, where they read the same.

        They have the reader and the recipe as these were when they started. A pass that begins
        while another goes on has workers of its own.
        """
        while self._idle:
            chosen, known, engine = self._idle.pop()
            is_same = chosen == workers and known.reader == fetch.reader
            if is_same and known.recipe is fetch.recipe and engine.is_ready():
                return LentEngine(self, workers, known, engine)
            engine.close()
        return LentEngine(self, workers, fetch, workers.engine(fetch, is_mixed=is_mixed))

    def give_back(self, workers: Workers, fetch: Fetch, engine: Engine) -> None:
        """Keep the workers of a pass that ended; end them where that was not asked for."""
        if not self._are_kept or workers.kind != "processes" or not self._end.alive or self._idle:
            engine.close()
            return
        engine.rest()  # type: ignore[attr-defined] # the engine of this kind
        self._idle.append((workers, fetch, engine))  # type: ignore[arg-type]

    def close(self) -> None:
        """End the workers that wait for a pass."""
        _end(self._idle)


class LentEngine:
    """The engine of one pass: ended by an error, else given back."""

    def __init__(self, owner: KeptWorkers, workers: Workers, fetch: Fetch, engine: Engine) -> None:
        self._owner, self._workers, self._fetch, self._engine = owner, workers, fetch, engine

    def __enter__(self) -> Engine:
        return self._engine

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or kind is GeneratorExit:
            self._owner.give_back(self._workers, self._fetch, self._engine)
        else:
            self._engine.close()


def _anew(are_kept: bool) -> KeptWorkers:  # noqa: FBT001 (as pickle calls it)
    return KeptWorkers(are_kept=are_kept)


def _end(idle: list[tuple[Workers, Fetch, InProcesses]]) -> None:
    while idle:
        idle.pop()[-1].close()
