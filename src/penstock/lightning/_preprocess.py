"""Preprocessors: functions that make observations of raw records."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.lightning._options import STREAMING, nearest, one_of, option_hint

if TYPE_CHECKING:
    from penstock.lightning._trainer_ranks import TrainerRanks
    from penstock.schema import Strata

GIVEN = ("strata", "interprocess_encoding_context")
"""Keywords that every preprocessor may take besides the user's own."""


class PreprocessorMode(StrEnum):
    """How many observations a preprocessor makes of a record: one, or any number."""

    transformation = "transformation"
    generator = "generator"


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """A function of a record, and how many observations it makes.

    Args:
        name: The name that data modules know it by.
        func: Called as `func(record, **options)`; a transformation returns a dict, a generator an
            iterable of dicts.
        mode: `"transformation"` or `"generator"`.
    """

    name: str
    func: Callable[..., Any]
    mode: PreprocessorMode = PreprocessorMode.transformation

    def __post_init__(self) -> None:
        if not callable(self.func):
            raise TypeError(f"Preprocessor: func={self.func!r}: expected a function.")
        mode = one_of(PreprocessorMode, "Preprocessor: mode", self.mode)
        object.__setattr__(self, "mode", mode)


PREPROCESSORS: dict[str, Preprocessor] = {}
"""The preprocessors that `preprocess` registered, by name."""


def preprocess(function: Any = None, /, **options: Any) -> Any:
    """Register a function as a preprocessor, by its name; returns the function.

    Args:
        function: The function; without it, a decorator is returned.
        options: `yields=True` (or `yield`) for a function that makes any number of observations.

    >>> @preprocess
    ... def cents(record):
    ...     return {**record, "amount": record["amount"] * 100}
    >>> @preprocess(yields=True)
    ... def repeated(record, times=2):
    ...     yield from [record] * times
    >>> PREPROCESSORS["repeated"].mode.value, cents({"amount": 2})
    ('generator', {'amount': 200})
    """
    unknown = sorted(options.keys() - {"yield", "yields"})
    if unknown:
        raise TypeError(f"preprocess has no option {unknown[0]!r}: there is yields=True.")
    if len(options) > 1:
        raise TypeError("preprocess: yields and yield are the same option; give one of them.")
    yields = next(iter(options.values()), False)
    if not isinstance(yields, bool):
        raise TypeError(f"preprocess: yields={yields!r} is neither True nor False.")

    def register(func: Any) -> Any:
        name = getattr(func, "__name__", None)
        if not callable(func) or name is None:
            raise TypeError(f"preprocess takes a function, not {func!r}.")
        if name in PREPROCESSORS and PREPROCESSORS[name].func is not func:
            is_direct = function is not None
            warnings.warn(
                f"the preprocessor {name!r} is registered anew.", stacklevel=2 + is_direct
            )
        makes_several = yields or inspect.isgeneratorfunction(func)
        PREPROCESSORS[name] = Preprocessor(name, func, _mode(several=makes_several))
        return func

    return register if function is None else register(function)


def _mode(*, several: bool) -> PreprocessorMode:
    return PreprocessorMode.generator if several else PreprocessorMode.transformation


def resolved(preprocessor: object) -> Preprocessor | None:
    """Return the preprocessor that a data module was given, in any of its forms."""
    if preprocessor is None or isinstance(preprocessor, Preprocessor):
        return preprocessor
    if isinstance(preprocessor, str):
        if preprocessor in PREPROCESSORS:
            return PREPROCESSORS[preprocessor]
        hint = nearest(preprocessor, PREPROCESSORS) or " Register it with @preprocess."
        raise OptionError(f"there is no preprocessor {preprocessor!r}.{hint}")
    if not callable(preprocessor):
        raise TypeError(
            f"preprocessor={preprocessor!r}: expected a function, the name of a registered one, "
            "or a Preprocessor."
        )
    name = getattr(preprocessor, "__name__", type(preprocessor).__name__)
    known = PREPROCESSORS.get(name)
    if known is not None and known.func is preprocessor:
        return known
    called = (preprocessor, preprocessor.__call__)
    if any(map(inspect.iscoroutinefunction, called)):
        raise TypeError(f"the preprocessor {name!r} is async: give a plain function.")
    several = any(map(inspect.isgeneratorfunction, called))
    return Preprocessor(name, preprocessor, _mode(several=several))


def check_options(
    preprocessor: Preprocessor | None, options: Mapping[str, Any], known: Iterable[str]
) -> None:
    """Refuse options that a preprocessor does not take, and a lack of those that it needs.

    `known` are the options of the data module.
    """
    for name in GIVEN:
        if name in options:
            raise OptionError(f"{name}= is given to preprocessors by the data module.")
    signature = None if preprocessor is None else _signature(preprocessor.func)
    declared = () if signature is None else [*signature.parameters][1:]
    taken = {} if preprocessor is None else _taken(preprocessor, options)
    for name in options:
        if name not in taken or (name in STREAMING and name not in declared):
            nor = (
                "" if preprocessor is None else f", nor has the preprocessor {preprocessor.name!r}"
            )
            hint = option_hint(name, [*known, *declared])
            raise TypeError(f"the data module has no option {name!r}{nor}.{hint}")
    if preprocessor is not None and signature is not None:
        try:
            signature.bind({}, **_taken(preprocessor, {**options, **dict.fromkeys(GIVEN)}))
        except TypeError as why:
            raise TypeError(
                f"the preprocessor {preprocessor.name!r} cannot be called: {why}. It takes a "
                "record, and options that are given to the data module."
            ) from None


def _taken(preprocessor: Preprocessor, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that a preprocessor takes: all where it does not say."""
    signature = _signature(preprocessor.func)
    if signature is None:
        return dict(options)
    parameters = signature.parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return dict(options)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {one.name for one in [*parameters][1:] if one.kind in kinds}
    return {name: value for name, value in options.items() if name in names}


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return what a function takes; None where it does not say."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


class PreprocessorCall:
    """Makes observations of a record: a function for `Stream.map`."""

    def __init__(
        self,
        preprocessor: Preprocessor,
        options: Mapping[str, Any],
        strata: Strata,
        context: Any,
        ranks: TrainerRanks,
    ) -> None:
        self._preprocessor, self._ranks = preprocessor, ranks
        given = {"strata": strata, "interprocess_encoding_context": context}
        self._options = _taken(preprocessor, {**options, **given})
        self.__name__ = preprocessor.name
        self.keeps_count = preprocessor.mode is PreprocessorMode.transformation
        """Whether there are as many observations as records."""

    def __call__(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        self._ranks.enter()
        made = self._preprocessor.func(record, **self._options)
        if self.keeps_count:
            if not isinstance(made, dict):
                self._refuse(made, "a dict", " To drop or multiply records, register")
            return [made]
        if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
            self._refuse(made, "an iterable of dicts")
        found = list(made)
        for one in found:
            if not isinstance(one, dict):
                self._refuse(one, "dicts")
        return found

    def _refuse(self, made: object, wanted: str, hint: str = "") -> None:
        hint = hint and f"{hint} it with @preprocess(yields=True)."
        raise TypeError(
            f"the preprocessor {self._preprocessor.name!r} must produce {wanted}, got "
            f"{type(made).__name__}.{hint}"
        )
