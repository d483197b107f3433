"""The schema of `schema.py`: 11 leaves, four of them in lists of up to 16 items, with masks.

It needs no package, because it also runs in the environment of json2vec.
"""

from __future__ import annotations

from typing import Any


def fields(of: Any) -> list[Any]:  # noqa: ANN401 (a module: penstock.schema or json2vec)
    """Return the nodes below the root, made of the classes of a module."""
    return [
        of.Number("amount", p_mask=0.1),
        of.Number("age", p_mask=0.1),
        of.Category("country", p_mask=0.1),
        of.Category("device", p_mask=0.1),
        of.DateParts("at", dateparts=["day_of_week", "hour_of_day"]),
        of.Set("tags", max_vocab_size=128),
        of.Category("label", target=True),
        of.Array(
            of.Category("sku", p_mask=0.1),
            of.Number("price", p_mask=0.1),
            of.Number("quantity"),
            of.Category("brand", p_prune=0.1),
            name="items",
            max_length=16,
        ),
    ]
