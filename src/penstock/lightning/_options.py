"""Options of data modules: one value, or one for each split."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar

from penstock._cpus import usable_cpus
from penstock.errors import OptionError
from penstock.schema import Strata, split_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

_MOST_WORKERS = 8
_ELSEWHERE = {
    "batch_size": "The model has it: SchemaModel(…, batch_size=…)",
    "shuffle": "observation_buffer_size= is the number of observations that a shuffle draws from",
    "drop_last": "The last batch of an epoch is always handed out",
}
"""Options that users look for, and what there is instead."""
_OF_TRAINING = ("shuffle", "weights", "balance", "skip")
"""Options of `DataLoader` that hold for training alone, unless they are given by split."""


class ShardingStrategy(StrEnum):
    """What is assigned whole to one worker of one rank: a file, a chunk of records, a record."""

    file = "file"
    chunk = "chunk"
    record = "record"


class Suffix(StrEnum):
    """The format of the files of a `StreamingDataModule`."""

    ndjson = "ndjson"
    parquet = "parquet"
    feather = "feather"
    avro = "avro"
    csv = "csv"
    orc = "orc"
    json = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How a data module does its work; everything that json2vec has no option for."""

    seed: int | None = None
    """Decides every random choice; by default `torch.initial_seed()`."""
    assignment: Literal["balanced", "hash"] = "balanced"
    """How units get their workers: "balanced" gives each about as many records. "hash" depends on
    the name of a unit alone, so other units in the listing do not move it."""
    equalize: Literal["wrap", "drop", "none"] = "wrap"
    """What ranks with fewer batches do: "wrap" repeats their first records, with `valid` False;
    "drop" ends all ranks with the first, and needs lengths that are known; "none" lets each end by
    itself, which blocks training. For prediction it is always "none"."""
    epoch: Literal["finite", "infinite"] = "finite"
    """With replacement: whether an epoch has as many draws as there are records, or no end."""
    on_error: Literal["raise", "skip"] | None = None
    """What happens at records that cannot be read: "skip" logs each, and keeps a row with `valid`
    False in its place; a preprocessor does not see it. A file that cannot be opened is left out,
    with a warning. By default "raise" for ndjson and "skip" for other files, as in json2vec."""
    bad_values: Literal["raise", "mask"] = "raise"
    """What happens at a value that does not fit its leaf: "mask" logs the record, and keeps its row
    with `valid` False and all slots hidden; nothing of it is to be predicted."""
    allow_empty: bool = False
    """Whether a split pattern may match no file, or files without a record."""
    path: Literal["auto", "columnar", "rows"] = "auto"
    """How values are found: "rows" walks each record in Python, as a reference."""
    null_semantics: Literal["slots", "jmespath"] = "slots"
    """"jmespath" drops nulls as json2vec does, so that values of an object may move apart."""
    mask_padding: bool = True
    """Whether `p_mask` hides padded slots, too."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """As for `penstock.open`."""
    format_options: Mapping[str, Any] | None = None
    """As for `penstock.open`."""
    multiprocessing_context: str | None = None
    """How worker processes start, as for `penstock.DataLoader`."""

    def __new__(cls, **options: Any) -> Self:
        """Refuse unknown options, with the nearest name; a dataclass names none."""
        for name in options.keys() - cls.__dataclass_fields__.keys():
            raise TypeError(
                f"EngineOptions has no option {name!r}.{nearest(name, cls.__dataclass_fields__)}"
            )
        return object.__new__(cls)

    def __post_init__(self) -> None:
        if self.seed is not None:
            object.__setattr__(self, "seed", _whole(None)("EngineOptions: seed", self.seed))
        for name in ("allow_empty", "mask_padding"):
            _flag(f"EngineOptions: {name}", getattr(self, name))
        for name in ("storage_options", "format_options"):
            if not isinstance(getattr(self, name), Mapping | None):
                kind = type(getattr(self, name)).__name__
                raise TypeError(f"EngineOptions: {name} is of type {kind}, and a dict is expected.")
        for name, choices in (
            ("assignment", ("balanced", "hash")),
            ("equalize", ("wrap", "drop", "none")),
            ("epoch", ("finite", "infinite")),
            ("on_error", ("raise", "skip", None)),
            ("bad_values", ("raise", "mask")),
            ("path", ("auto", "columnar", "rows")),
            ("null_semantics", ("slots", "jmespath")),
            ("multiprocessing_context", ("fork", "forkserver", "spawn", None)),
        ):
            value = getattr(self, name)
            if value not in choices:
                known = " or ".join(repr(one) for one in choices if one is not None)
                raise OptionError(f"EngineOptions: {name}={value!r}: expected {known}.")


class SplitOptions(NamedTuple):
    """The options of one split."""

    num_workers: int | None
    persistent_workers: bool
    pin_memory: bool
    observation_buffer_size: int
    sample_rate: float
    chunk_batch_size: int | None = None
    sharding: ShardingStrategy = ShardingStrategy.chunk
    file_buffer_size: int = 1
    replacement: bool = False

    def in_order(self) -> SplitOptions:
        """Return options with which every record comes once, in its order."""
        return self._replace(
            observation_buffer_size=1, sample_rate=1.0, file_buffer_size=1, replacement=False
        )

    def workers(self, local_world_size: int) -> int:
        """Return how many worker processes a loader starts."""
        if self.num_workers is not None:
            return self.num_workers
        return min(_MOST_WORKERS, usable_cpus() // max(1, local_world_size))


class OptionRule(NamedTuple):
    """What an option may be."""

    check: Callable[[str, Any], Any]
    default: Any
    """A value, or one for each split."""
    takes_none: bool = False
    """Whether None stands for the default."""


def given_splits(given: Mapping[str, Any]) -> dict[Strata, Any]:
    """Return what each split was given, of arguments by name."""
    return {split: given[split] for split in Strata if given[split] is not None}


def split_options(
    given: Mapping[str, Any], rules: Mapping[str, OptionRule]
) -> dict[Strata, SplitOptions]:
    """Return the options of each split, checked.

    A mapping has values by split; splits that it lacks have the option's default.
    """
    found: dict[Strata, dict[str, Any]] = {split: {} for split in Strata}
    for name, value in given.items():
        own = _by_split(name, value) if isinstance(value, Mapping) else dict.fromkeys(Strata, value)
        check, default, takes_none = rules[name]
        for split in Strata:
            one = own.get(split, default)
            if split not in own or (one is None and takes_none):
                found[split][name] = default[split] if isinstance(default, Mapping) else default
                continue
            where = f"{name}[{split.value!r}]" if isinstance(value, Mapping) else name
            found[split][name] = check(where, one)
    return {split: SplitOptions(**own) for split, own in found.items()}


def of_split(name: str, value: Any, split: Strata) -> Any:
    """Return what an option of `DataLoader` is for a split; None for its default."""
    if isinstance(value, Mapping):
        return _by_split(name, value).get(split)
    return value if split is Strata.train or name not in _OF_TRAINING else None


def _by_split(name: str, value: Mapping[Any, Any]) -> dict[Strata, Any]:
    try:
        return {split_named(key): one for key, one in value.items()}
    except OptionError as why:
        raise OptionError(f"{name}={value!r}: {why}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is most like another one; "" where none is like it.

    >>> nearest("sampel_rate", ["sample_rate", "sharding"]), nearest("val", ["validate"])
    (" Did you mean 'sample_rate'?", " Did you mean 'validate'?")
    """
    known = [*known]
    found = [one for one in known if one.startswith(name)] or get_close_matches(name, known, 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def option_hint(name: str, known: Iterable[str]) -> str:
    """Return a hint at what an unknown option of a data module means.

    >>> option_hint("seed", ["sample_rate"])
    ' Give engine=EngineOptions(seed=…).'
    """
    if name in EngineOptions.__dataclass_fields__:
        return f" Give engine=EngineOptions({name}=…)."
    return f" {_ELSEWHERE[name]}." if name in _ELSEWHERE else nearest(name, known)


def _whole(least: int | None) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name}={value!r}: expected a whole number.")
        if least is not None and value < least:
            raise OptionError(f"{name}={value!r}: expected {least} or more.")
        return operator.index(value)

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: expected True or False.")
    return value


def _rate(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: expected a number.")
    if not 0 < value <= 1:
        raise OptionError(f"{name}={value!r}: expected a number above 0 and at most 1.")
    return float(value)


def _sharding(name: str, value: Any) -> ShardingStrategy:
    return one_of(ShardingStrategy, name, value)


def one_of(kind: type[T], name: str, value: Any) -> T:
    """Return a member of an enumeration by its name, in any case."""
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}: expected a text.")
    try:
        return kind(value.strip().lower())  # type: ignore[call-arg]
    except ValueError:
        known: Iterable[Any] = kind  # type: ignore[assignment]
        raise OptionError(
            f"{name}={value!r}: expected one of {', '.join(str(one) for one in known)}."
        ) from None


SHARED = {
    "num_workers": OptionRule(_whole(0), None, takes_none=True),
    "persistent_workers": OptionRule(_flag, default=True),
    "pin_memory": OptionRule(_flag, default=True),
    "observation_buffer_size": OptionRule(_whole(1), 1),
    "sample_rate": OptionRule(_rate, 1.0),
}
"""The options of all data modules."""
NUMBERED = {
    **SHARED,
    "chunk_batch_size": OptionRule(_whole(1), None, takes_none=True),
    "sharding": OptionRule(_sharding, ShardingStrategy.chunk),
    "replacement": OptionRule(_flag, default=False),
}
"""The options of a `PolarsDataModule`."""
STREAMING = {
    **NUMBERED,
    "sharding": OptionRule(_sharding, ShardingStrategy.file),
    "file_buffer_size": OptionRule(_whole(1), 1),
    "replacement": OptionRule(
        _flag, {split: split is Strata.train for split in Strata}, takes_none=True
    ),
}
"""The options of a `StreamingDataModule`."""
