"""`penstock.stream`: records that flow, unit by unit, and have no numbers of their own."""

from __future__ import annotations

import inspect
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._lazy import imported
from penstock._words import counted
from penstock.datasets._mapped import function_name
from penstock.datasets._memory import bytes_of
from penstock.datasets.views._views import fingerprint_of
from penstock.errors import OptionError
from penstock.order import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets._source import Source

OWN_BITS = 40
"""Bits of a record's id in which it has the number of the source that a stream goes over."""
_LONGEST = 80


def own_numbers(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers that records have in the source of their stream, given their ids.

    >>> own_numbers(np.array([3, (1 << 62) + (1 << OWN_BITS) + 4])).tolist()
    [3, 4]
    """
    return ids & ((1 << OWN_BITS) - 1)


def stream(
    units: Iterable[Any] | Callable[..., Iterable[Any]],
    read: Callable[[Any, int], Iterable[Any]] | None = None,
    *,
    length: int | None = None,
    name: str | None = None,
    buffer: int = 10_000,
) -> Stream:
    """Return records that flow, for `DataLoader`: files, partitions or chunks that are only read.

    Args:
        units: Small values, as paths or numbers of chunks, or a function that returns them: once,
            or if it has a parameter `epoch`, for each epoch. Each is read by one rank and one
            worker: give several times as many as there are workers.
        read: `read(unit, start)` yields the records of a unit as dicts or Arrow record batches,
            beginning with record `start`, the same ones each time. Skip the first `start` records
            in the fastest way that there is: a resume calls it with the first one that is missing.
            Leave it out for a generator function or a torch `IterableDataset` in place of units.
        length: About how many records there are, for `len(loader)`, which raises without it.
        name: Label used in messages.
        buffer: Records that `shuffle=True` draws from at a time. More mix better, and take memory
            and time until the first batch and at a resume.

    >>> def read(unit, start=0):
    ...     for number in range(start, 3):
    ...         yield {"unit": unit, "number": number}
    >>> stream(["a", "b"], read)
    <Stream of 2 units>
    """
    count = None if length is None else whole_number("length", length, 0)
    options = {"length": count, "name": name, "buffer": whole_number("buffer", buffer, 1)}
    is_list = isinstance(units, Iterable) and not isinstance(units, str | bytes | Mapping)
    if not is_list and not callable(units):
        raise OptionError(f"units={units!r}: expected a list of units, as [{units!r}].")
    if isinstance(units, set | frozenset):
        raise OptionError(
            "units is a set, which each process has in another order: give sorted(units)."
        )
    if read is None:
        found = as_stream(units)
        if found is None:
            raise OptionError(
                f"{units!r:.80} cannot be read without `read`: only a generator function and a "
                "torch IterableDataset can. Give def read(unit, start=0) as well."
            )
        return found.changed(**options)
    if not callable(read):
        raise OptionError(f"read={read!r}: expected a function of a unit and a record's number.")
    try:
        inspect.signature(read).bind("unit", 0)
    except TypeError as why:
        raise OptionError(
            f"read={function_name(read)}: {why}. It takes a unit and the number of the first "
            "record that is wanted: def read(unit, start=0)."
        ) from None
    except ValueError:
        pass  # A function in C does not always say what it takes.
    # A generator of units is used up after one list of them.
    return Stream(units if callable(units) else list(units), read).changed(**options)


class TorchWorker(NamedTuple):
    """What `torch.utils.data.get_worker_info()` says in a worker process."""

    id: int
    num_workers: int
    seed: int

    def seed_generators(self) -> None:
        """Seed the generators of this process as torch does: a fork copies those of its parent."""
        torch: Any = imported("torch")
        for seed in (random.seed, np.random.seed, *([torch.manual_seed] if torch else [])):
            seed(self.seed % 2**32)


class Stream:
    """Records that flow unit by unit; `penstock.stream` makes one.

    Small and picklable; nothing is open in it.
    """

    is_one_function = False
    """Whether it is a generator function, which is one unit and cannot be shared."""
    shards_itself = False
    """Whether each rank and worker reads all of it, leaves out what others read, and gets records
    of any kind."""
    source: Source | None = None
    """The source whose record numbers, int64 arrays, units yield in place of records."""
    is_permuted = True
    """Whether a shuffle permutes units, and not only the records of a buffer."""
    repeats = False
    """Whether a record may come more than once in an epoch."""
    wraps = False
    """Whether a rank that has run out repeats its first records, rather than rows of zeros."""
    ends_together = True
    """Whether a rank that has run out goes on in this way until the others have, too."""

    def __init__(self, units: Any, read: Any) -> None:
        self._units, self._read = units, read
        self.length: int | None = None
        self.name: str | None = None
        self.buffer = 10_000
        self.changes = callable(units) and "epoch" in _parameters(units)
        """Whether each epoch has units of its own, which `at` returns."""
        self.rate, self.split = 1.0, ""
        """The share of records that `sample` keeps; other ones for each split."""
        self._maps: tuple[Callable[[Any], Any], ...] = ()
        self._epochs: tuple[tuple[int, Stream], ...] = ()
        self._prints: dict[int | None, str] = {}

    def at(self, epoch: int) -> Stream:
        """Return the stream with the units of an epoch."""
        if not self.changes:
            return self
        found = dict(self._epochs).get(epoch)
        if found is None:
            units = list(self._units(epoch=epoch))
            found = self.changed(_units=units, changes=False, _epochs=(), _prints={})
            # Two: a pass asks for the next epoch before the last batch of one is handed out.
            self._epochs = (*self._epochs[-1:], (epoch, found))
        return found

    @cached_property
    def units(self) -> list[Any]:
        """The units; a function is asked for them once."""
        return list(self._units() if callable(self._units) else self._units)

    def fingerprint(self, count: int | None = None) -> str:
        """Return a hash of the units, or of the first ones; what they hold does not change it."""
        if count not in self._prints:
            self._prints[count] = fingerprint_of("stream", *map(bytes_of, self.units[:count]))
        return self._prints[count]

    def map(self, function: Callable[[Any], Any]) -> Stream:
        """Return a stream of what `function` makes of each record: a dict, or some, or none.

        A list or a generator of dicts stands for several records, an empty one drops the record.
        It runs where records are read, and has to pickle for worker processes. A resume reads the
        record again whose results were not all handed out.
        """
        if not callable(function):
            raise OptionError(f"map takes a function of one record, not {function!r}.")
        return self.changed(_maps=(*self._maps, function), _epochs=(), length=None)

    def sample(self, rate: float) -> Stream:
        """Return a stream that keeps each record with this probability.

        The choice is a hash of seed, epoch and record: each epoch has others, and they depend
        neither on ranks nor workers. Records are chosen behind `map`.
        """
        if not 0 < rate <= 1:
            raise OptionError(f"sample takes a number above 0 and at most 1, not {rate!r}.")
        return self.changed(rate=self.rate * rate, _epochs=(), length=None)

    def owners(self, world_size: int, lanes: int) -> NDArray[np.int64] | None:
        """Return which of all readers has each unit, int64: lane + `lanes` × rank.

        None lets units go to them in turn.
        """
        del world_size, lanes
        return None

    def changed(self, **values: Any) -> Stream:
        """Return a copy with other attributes."""
        copy = object.__new__(type(self))  # `copy` would pickle the units.
        vars(copy).update(vars(self), **values)
        return copy

    @property
    def is_mapped(self) -> bool:
        """Whether `made` changes records."""
        return bool(self._maps)

    @contextmanager
    def mapping(self, worker: TorchWorker | None) -> Iterator[None]:
        """Let the functions of `map` see in which worker they run, as torch says it.

        What reads units does not see it: units are shared out already.
        """
        if worker is None or self.shards_itself:
            yield
            return
        _tell(worker, self)
        try:
            yield
        finally:
            _tell(None)

    def made(self, record: Any) -> list[Any]:
        """Return what the functions of `map` make of a record."""
        records = [record]
        for function in self._maps:
            records = [each for one in records for each in _several(function(one), function)]
        return records

    def records(self, numbers: NDArray[np.int64]) -> list[Any]:
        """Return records of `source`; None for those that `map` is to leave out."""
        if self.source is None:
            raise OptionError("units yield records: only a stream of a source yields numbers.")
        found: list[Any] = self.source.read(numbers)
        return found

    def opened(self, number: int, start: int, worker: TorchWorker | None) -> Iterator[Any]:
        """Return what `read` yields of a unit, from a record on."""
        del worker
        return iter(self._read(self.units[number], start))

    def unit_name(self, number: int) -> str:
        unit = self.units[number]
        text = unit if isinstance(unit, str) else repr(unit)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"

    def __getstate__(self) -> dict[str, Any]:
        if self.changes:
            return {**vars(self), "_epochs": ()}
        for number, unit in enumerate(self.units):
            try:
                pickle.dumps(unit)
            except Exception as why:  # noqa: BLE001 (pickle raises any)
                raise OptionError(
                    f"unit {number} of the stream, {self.unit_name(number)}, does not pickle: {why}"
                ) from None
        return {**vars(self), "_units": ()}

    def __repr__(self) -> str:
        return f"<Stream{f' {self.name!r}' if self.name else ''} of {self._what()}>"

    def _what(self) -> str:
        return "units by epoch" if self.changes else counted(len(self.units), "unit")


class FunctionStream(Stream):
    """The records of a generator function: one unit."""

    is_one_function = True

    def __init__(self, function: Any) -> None:
        super().__init__([function_name(function)], function)

    def opened(self, number: int, start: int, worker: TorchWorker | None) -> Iterator[Any]:
        del number, worker
        return _without_first(iter(self._read()), start)

    def _what(self) -> str:
        return self.unit_name(0)


class DatasetStream(FunctionStream):
    """The records of a torch `IterableDataset`; units are ranks × workers, each reads it all."""

    is_one_function = False
    shards_itself = True

    def opened(self, number: int, start: int, worker: TorchWorker | None) -> Iterator[Any]:
        dataset = self._read
        if worker is not None:
            _tell(worker, dataset)
        return _without_first(iter(dataset), start)

    def unit_name(self, number: int) -> str:
        return f"{self.units[0]}, share {number}" if number else str(self.units[0])


def running_worker() -> Any:
    """Return the worker in which a dataset or a function of `map` runs now; None elsewhere."""
    torch_data: Any = imported("torch.utils.data")
    return _running or (torch_data and torch_data.get_worker_info())


_running: TorchWorker | None = None


def _tell(worker: TorchWorker | None, dataset: object = None) -> None:
    """Let `running_worker` and torch's `get_worker_info` return a worker."""
    global _running  # noqa: PLW0603 (so does torch, without a public way to set it)
    _running = worker
    torch_workers: Any = imported("torch.utils.data._utils.worker")
    if torch_workers is not None:
        info = worker and torch_workers.WorkerInfo(**worker._asdict(), dataset=dataset)
        torch_workers._worker_info = info  # noqa: SLF001


def as_stream(what: Any) -> Stream | None:
    """Return the stream that an object is: a generator function, a torch `IterableDataset`."""
    if isinstance(what, Stream):
        return what
    if inspect.isgeneratorfunction(what):
        return FunctionStream(what)
    torch_data: Any = imported("torch.utils.data")
    if torch_data is not None and isinstance(what, torch_data.IterableDataset):
        return DatasetStream(what)
    opens = hasattr(what, "__arrow_c_stream__") or hasattr(what, "__getitem__")
    if isinstance(what, Iterator) and not opens:
        raise OptionError(
            f"{what!r} is used up after one epoch and cannot be read again: give the function that "
            "makes it, or penstock.stream(units, read)."
        )
    return None


def _without_first(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    next(islice(iterator, count, count), None)
    return iterator


def _parameters(function: Any) -> Iterable[str]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # A function in C does not always say what it takes.
        return ()


def _several(made: Any, function: Callable[[Any], Any]) -> list[Any]:
    """Return what a function of `map` made as a list of records."""
    records = [made] if isinstance(made, Mapping) else made
    if isinstance(records, Iterable) and not isinstance(records, str | bytes):
        records = list(records)
        if all(isinstance(one, Mapping) for one in records):
            return records
        made = next(one for one in records if not isinstance(one, Mapping))
    raise OptionError(
        f"{function_name(function)} made {made!r:.80} of a record: Stream.map takes a function "
        "that returns a dict, or an iterable of dicts; return [] to drop a record."
    )
