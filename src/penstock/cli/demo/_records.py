"""Made-up records, each a function of its number, so that every copy can be checked."""

from __future__ import annotations

EXTENSION = ".jsonl.zst"
_CITIES = ("Bergen", "Como", "Grenoble", "Innsbruck", "Ljubljana")


def record(number: int) -> dict[str, object]:
    """Return the record of a number.

    >>> record(7)["id"], record(7)["user"]["city"]
    (7, 'Grenoble')
    """
    mixed = number * 2_654_435_761 % (1 << 32)
    return {
        "id": number,
        "user": {"id": mixed % 1000, "city": _CITIES[number % len(_CITIES)]},
        "items": [mixed >> shift & 0xFFF for shift in range(0, mixed % 20 + 1, 4)],
        "price": round(mixed / (1 << 32) * 100, 2),
        "text": f"record {number} of the demonstration",
    }
