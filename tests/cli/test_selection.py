from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli._stream import sampled, sampled_numbers, sliced
from penstock.cli.check._parts import Sample
from tests.rounds import rounds

bounds = st.none() | st.integers(-30, 30)
cuts = st.lists(st.integers(0, 20), max_size=5)


@given(st.integers(0, 20), bounds, bounds)
def test_a_range_is_what_a_list_would_give(total: int, start: int | None, stop: int | None) -> None:
    which = slice(start, stop)
    assert list(sliced(iter(range(total)), which)) == list(range(total))[which]


@given(st.integers(0, 10), st.integers(0, 10))
def test_a_range_from_the_front_reads_no_further_than_it_must(start: int, length: int) -> None:
    stream = iter(range(30))
    list(sliced(stream, slice(start, start + length)))
    assert next(stream) <= start + length


@given(st.integers(0, 20), st.integers(1, 25), st.integers(0, 99))
def test_a_sample_depends_on_the_seed_alone(total: int, size: int, seed: int) -> None:
    sample = list(sampled(range(total), size, seed))
    assert len(sample) == min(size, total)
    assert sample == sorted(set(sample))
    assert sampled_numbers(total, size, seed) == sample


def test_a_sample_stays_the_same_from_release_to_release() -> None:
    assert sampled_numbers(1000, 8, 0) == [28, 170, 271, 298, 321, 455, 482, 810]


def test_every_record_is_equally_likely_to_be_sampled() -> None:
    runs = rounds(2000, 20000)
    seen = Counter(number for seed in range(runs) for number in sampled(range(20), 5, seed))
    expected = runs * 5 / 20
    # Six standard deviations of a binomial count.
    allowed = 6 * (expected * 0.75) ** 0.5
    assert set(seen) == set(range(20))
    assert all(abs(count - expected) < allowed for count in seen.values())


@given(cuts, st.floats(0.01, 1), st.integers(0, 99))
def test_sampled_lines_depend_on_the_seed_and_not_on_the_cuts(
    cuts: list[int], share: float, seed: int
) -> None:
    edges = [0, *sorted(cuts), 1000]
    chosen = Sample(share, str(seed))
    lines = [a + i for a, b in pairwise(edges) for i in chosen(b - a)]
    assert lines == Sample(share, str(seed))(1000)
    assert lines == sorted(set(lines))
    assert all(0 <= line < 1000 for line in lines)


def test_a_share_of_the_lines_is_sampled() -> None:
    assert Sample(1, "0")(10) == list(range(10))
    counts = Counter(line for seed in range(2000) for line in Sample(0.3, str(seed))(10))
    assert all(abs(counts[line] - 600) < 6 * (600 * 0.7) ** 0.5 for line in range(10))
