# ruff: noqa: ANN401 (what a user gives, and what a state holds)
"""The weights of a mixture: phases of an epoch, and their changes during a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from numbers import Rational
from typing import Any, NamedTuple, TypeAlias

from penstock.errors import OptionError
from penstock.order._schedule import LONGEST, Stretch
from penstock.order._whole import whole_number

Weights: TypeAlias = Mapping[str, float] | Sequence[tuple[int, Mapping[str, float]]]
"""A weight for each source, or phases: from which position of an epoch on which weights hold."""
Phase: TypeAlias = tuple[int, tuple[int, ...]]
"""A position, and the weight of each source from there on; 0 where it does not come."""

_FINE = 2**30
"""The sum of weights that no smaller whole numbers express."""


class Change(NamedTuple):
    """Phases that hold from a place of a run on: to the end of that epoch, and in later ones."""

    epoch: int
    position: int
    phases: tuple[Phase, ...]


def phases_of(weights: Weights, names: Sequence[str]) -> tuple[Phase, ...]:
    """Return the phases that a user gave, with weights as whole numbers in the same proportions.

    >>> phases_of({"web": 0.7, "code": 0.3}, ["web", "code"])
    ((0, (7, 3)),)
    >>> phases_of([(0, {"web": 1}), (500, {"web": 1, "code": 2})], ["web", "code"])
    ((0, (1, 0)), (500, (1, 2)))
    """
    given = [(0, weights)] if isinstance(weights, Mapping) else _pairs(weights)
    starts = [whole_number("weights: the position of a phase", start, 0) for start, _ in given]
    if starts[:1] != [0] or any(one >= other for one, other in pairwise(starts)):
        raise OptionError(
            f"weights: phases begin at the positions {starts}; expected 0 first, then larger ones."
        )
    for _, own in given:
        _check_names(own, names)
    used = {name for _, own in given for name in own}
    if missing := [name for name in names if name not in used]:
        raise OptionError(
            f"weights: the source {missing[0]!r} has none. Give it one, or leave it out."
        )
    found = [[_weight(name, own[name]) if name in own else 0 for name in names] for _, own in given]
    return tuple(zip(starts, map(_whole, found), strict=True))


def _pairs(weights: Any) -> list[tuple[int, Mapping[str, float]]]:
    try:
        found = [(start, own) for start, own in weights]
    except (TypeError, ValueError):
        found = []
    if not found or not all(isinstance(own, Mapping) and own for _, own in found):
        raise OptionError(
            f"weights={weights!r}: expected a weight for each source, as in {{'web': 0.7, 'code': "
            "0.3}, or phases, as in [(0, {'web': 1}), (10_000, {'web': 1, 'code': 1})]."
        )
    return found


def _check_names(own: Mapping[str, float], names: Sequence[str]) -> None:
    if unknown := [name for name in own if name not in names]:
        raise OptionError(
            f"weights: there is no source {unknown[0]!r}. There are: {', '.join(map(repr, names))}."
        )


def _weight(name: str, value: Any) -> Fraction:
    try:
        # As it is written: 0.7 is seven tenths.
        found = Fraction(value) if isinstance(value, Rational) else Fraction(repr(float(value)))
    except (TypeError, ValueError):
        found = Fraction(-1)
    if found < 0 or isinstance(value, bool):
        raise OptionError(f"weights: {name!r} has the weight {value!r}; expected a number above 0.")
    if not found:
        raise OptionError(
            f"weights: {name!r} has the weight 0, and would never come. Leave the source out of "
            "the mixture, or its name out of a phase."
        )
    return found


def _whole(weights: Sequence[Fraction | int]) -> tuple[int, ...]:
    """Return whole numbers in the proportions of weights; those above 0 stay above 0."""
    scale = math.lcm(*(Fraction(weight).denominator for weight in weights))
    exact = [int(weight * scale) for weight in weights]
    common, total = math.gcd(*exact), sum(exact)
    if total // common <= _FINE:
        return tuple(weight // common for weight in exact)
    return tuple(max(round(Fraction(_FINE * one, total)), int(one > 0)) for one in exact)


def stretches(changes: Sequence[Change], epoch: int) -> list[Stretch]:
    """Return the weights of the positions of an epoch."""
    found: list[Stretch] = []
    for change in changes:
        if change.epoch > epoch:
            break
        begin = change.position if change.epoch == epoch else 0
        found = [one for one in found if one.start < begin]
        ends = [*(start for start, _ in change.phases[1:]), LONGEST]
        found += [
            Stretch(max(start, begin), end, weights)
            for (start, weights), end in zip(change.phases, ends, strict=True)
            if end > begin
        ]
    return found


def changed(
    changes: Sequence[Change], epoch: int, position: int, phases: tuple[Phase, ...]
) -> tuple[Change, ...]:
    """Return the changes of a run that has these phases from a place on, if they are others."""
    before = [one for one in changes if (one.epoch, one.position) < (epoch, position)]
    if (before or changes)[-1].phases == phases:
        return tuple(before or changes)
    return (*before, Change(epoch, position, phases))


def changes_in(document: Any, count: int) -> tuple[Change, ...]:
    """Read the changes of a state, of a mixture of `count` sources, or say that they are none."""
    try:
        found = tuple(
            Change(epoch, position, tuple((start, tuple(own)) for start, own in phases))
            for epoch, position, phases in document
        )
        numbers = [
            number
            for epoch, position, phases in found
            for number in (epoch, position, *(n for start, own in phases for n in (start, *own)))
        ]
        are_whole = all(type(number) is int and 0 <= number <= LONGEST for number in numbers)
        is_one = are_whole and bool(found) and _follow([one[:2] for one in found])
        is_one &= all(_is_possible(one.phases, count) for one in found)
    except (TypeError, ValueError):
        is_one = False
    if not is_one:
        raise OptionError(f"state: order.weights is {document!r}, expected those of a mixture.")
    return found


def _is_possible(phases: tuple[Phase, ...], count: int) -> bool:
    return _follow([(0, start) for start, _ in phases]) and all(
        len(own) == count and 0 < sum(own) < 2 * _FINE for _, own in phases
    )


def _follow(places: Sequence[tuple[int, int]]) -> bool:
    return places[:1] == [(0, 0)] and all(one < other for one, other in pairwise(places))
