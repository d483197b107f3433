from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli._units import bytes_text, counted, parse_age, parse_share, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("65536", 65536),
        ("256MB", 256_000_000),
        ("256MiB", 256 << 20),
        ("256mib", 256 << 20),
        ("1.5k", 1500),
        ("2 GiB", 2 << 30),
        ("1T", 10**12),
        ("512B", 512),
    ],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "0", "0.1", "1XB", "1iB", "1 2", "1e6", "none"])
def test_a_size_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"256MB|at least one"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("12h", 43200), ("2d", 172800), ("1.5W", 907200)],
)
def test_ages_are_read_with_their_units(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "d", "2 days", "-1d", "2y"])
def test_an_age_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="12h"):
        parse_age(text)


@pytest.mark.parametrize(
    ("text", "share"), [("1%", 0.01), ("100%", 1), ("0.5", 0.5), (".25", 0.25), ("1", 1)]
)
def test_shares_are_read_as_percent_or_fraction(text: str, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["", "0", "0%", "101%", "1.5", "-1%", "some"])
def test_a_share_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="1%"):
        parse_share(text)


@given(st.integers(min_value=0, max_value=10**20) | st.integers(min_value=0, max_value=200_000))
def test_bytes_are_told_in_three_digits_and_read_back_within_them(count: int) -> None:
    text = bytes_text(count)
    number, unit = text.split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15, "EB": 1e18}[unit]
    assert float(number.replace(",", "")) * factor == pytest.approx(count, rel=0.005)
    assert len(number.replace(".", "")) <= 3 or unit in ("B", "EB")


def test_one_thing_has_no_plural() -> None:
    assert counted(0, "file") == "0 files"
    assert counted(1, "file") == "1 file"
    assert counted(1234, "file") == "1,234 files"
