"""The splits of a data set."""

from __future__ import annotations

from enum import StrEnum

from penstock.errors import OptionError


class Strata(StrEnum):
    """A split; only `train` learns, and `predict` hides nothing."""

    train = "train"
    validate = "validate"
    test = "test"
    predict = "predict"


def split_named(name: object) -> Strata:
    """Return the split of a name in any case, white space aside."""
    try:
        return Strata(str(name).strip().lower())
    except ValueError:
        known = ", ".join(Strata)
        raise OptionError(f"strata={name!r}: expected one of {known}.") from None
