"""Sizes, ages, shares and counts as people write them: 256MB, 2d, 1%, 1 file."""

from __future__ import annotations

import re

import click

from penstock._words import counted as counted  # noqa: PLC0414 (verbs count, too)
from penstock._words import few as few  # noqa: PLC0414

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_THOUSAND = 1000


def parse_size(text: str) -> int:
    """Return bytes.

    >>> parse_size("65536"), parse_size("256MB"), parse_size("1.5 GiB")
    (65536, 256000000, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{text!r}: expected bytes, such as 65536, 256MB or 1GiB.")
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    size = int(float(match[1]) * (1024 if match[3] else _THOUSAND) ** power)
    if size < 1:
        raise click.BadParameter(f"{text!r}: expected at least one byte.")
    return size


def parse_age(text: str) -> float:
    """Return seconds.

    >>> parse_age("90s"), parse_age("12h"), parse_age("2d")
    (90.0, 43200.0, 172800.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text, re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{text!r}: expected an age, such as 30m, 12h or 2d.")
    return float(match[1]) * _SECONDS[match[2].lower()]


def parse_share(text: str) -> float:
    """Return a number above 0 and at most 1.

    >>> parse_share("1%"), parse_share("0.25")
    (0.01, 0.25)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise click.BadParameter(f"{text!r}: expected a share, such as 1% or 0.01; at most 100%.")
    return share


def parse_range(text: str, expected: str, number: str = r"\d+") -> slice:
    r"""Return the numbers that `N` or `A:B` names; `number` is the pattern of one of them.

    >>> parse_range("12", "a step"), parse_range("12:", "a step"), parse_range("-1", "", r"-?\d+")
    (slice(12, 13, None), slice(12, None, None), slice(-1, None, None))
    """
    match = re.fullmatch(rf"({number})|({number})?:({number})?", text)
    if match is None:
        raise click.BadParameter(f"{text!r}: expected {expected}.")
    if match[1]:
        return slice(int(match[1]), int(match[1]) + 1 or None)
    return slice(*(int(bound) if bound else None for bound in match.group(2, 3)))


def bytes_text(count: int) -> str:
    """Return a number of bytes for people.

    >>> bytes_text(999), bytes_text(9749), bytes_text(999_999), bytes_text(25_000_000_000)
    ('999 B', '9.75 kB', '1.00 MB', '25.0 GB')
    """
    if count < _THOUSAND:
        return f"{count} B"
    value = float(count)
    power = 0
    while value >= _THOUSAND - 0.5 and power < len(_PREFIXES) - 1:
        value /= _THOUSAND
        power += 1
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0  # noqa: PLR2004 (three of them)
    return f"{value:,.{digits}f} {_PREFIXES[power]}B"


def age_text(seconds: float) -> str:
    """Return a time span for people.

    >>> age_text(0.4), age_text(59), age_text(7200), age_text(100_000), age_text(40 * 86400)
    ('a moment', '59 s', '2 h', '28 h', '40 days')
    """
    if seconds < 1:
        return "a moment"
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:,.0f} days"
