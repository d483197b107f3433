"""The records for which a condition holds, found once."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets._reading import read_fields, refuse_unknown
from penstock.datasets._rule_views import Rule, RuleView
from penstock.datasets._views import fingerprint_of
from penstock.datasets.where._expression import names_in, parse
from penstock.datasets.where._predicate import holds
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.datasets._source import Source

_VERSION = 1
"""Raised whenever the same expression would match other records."""
_ROW = "penstock row number"


def where(source: Source, expression: object) -> Matched:
    """Return a view of the records for which an expression, as text or of pyarrow, holds.

    It is evaluated now; the numbers of the matching records are kept in the cache directory
    (for records in memory: in memory), where other processes find them.
    """
    condition: Condition
    if isinstance(expression, str):
        condition = TextCondition(expression)
    elif isinstance(expression, pc.Expression):
        condition = ArrowCondition(expression)
    else:
        raise OptionError(
            f"where takes a text, as in where(\"age >= 18 and country in ('de', 'fr')\"), or a "
            f"pyarrow.compute expression, not {type(expression).__name__}."
        )
    view = Matched(source, Search(source, condition))
    # An expression that does not fit the data is an error of this call and not of a later one.
    len(view)
    return view


class Condition(Protocol):
    """Decides which rows of some columns match; it pickles."""

    @property
    def key(self) -> str | bytes:
        """A text that is equal for equal conditions only."""
        ...

    def names(self, source: Source) -> Sequence[str]:
        """Return the fields to read."""
        ...

    def rows(self, columns: pa.RecordBatch) -> np.ndarray:
        """Return the rows that match, int64."""
        ...


class TextCondition:
    """A condition in the language of `_expression`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._node = parse(text)

    @property
    def key(self) -> str:
        """The condition without spaces, brackets and spellings that change nothing."""
        return repr(self._node)

    def names(self, source: Source) -> Sequence[str]:
        """Return the fields that the text names."""
        return names_in(self._node)

    def rows(self, columns: pa.RecordBatch) -> np.ndarray:
        """Return the rows that match, int64."""
        named = dict(zip(columns.schema.names, columns.columns, strict=True))
        found = pc.fill_null(holds(self._node, named, self._text), False)  # noqa: FBT003
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))


class ArrowCondition:
    """A pyarrow compute expression over the top-level fields."""

    def __init__(self, expression: pc.Expression) -> None:
        self._expression = expression

    @property
    def key(self) -> bytes:
        """Its serialised form, because its text leaves out most of a long list of values."""
        return pickle.dumps(self._expression, protocol=5)

    def names(self, source: Source) -> Sequence[str]:
        """Return the fields whose names occur in the expression's text, or all."""
        text, names = str(self._expression), source.schema.names
        if "FieldPath" in text or "FieldRef" in text:  # By position: all must be there.
            return list(names)
        return [name for name in names if name in text] or names

    def rows(self, columns: pa.RecordBatch) -> np.ndarray:
        """Return the rows that match, int64."""
        table = pa.Table.from_batches([columns])
        table = table.append_column(_ROW, pa.array(np.arange(columns.num_rows)))
        try:
            found = table.filter(self._expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            types = ", ".join(f"{column.name}: {column.type}" for column in columns.schema)
            problem = str(error).partition("\n")[0]
            raise OptionError(
                f"the expression {self._expression} does not fit the fields ({types}): {problem}"
            ) from None
        return np.sort(found[_ROW].to_numpy())


class Search(Rule):
    """Chooses the records for which a condition holds."""

    def __init__(self, source: Source, condition: Condition) -> None:
        super().__init__(source)
        self._condition = condition

    def fingerprint(self, part: int, source: str) -> str:
        """Return the fingerprint of the matching records of a source with that fingerprint."""
        return fingerprint_of("where", source, str(_VERSION), self._condition.key)

    def _search(self) -> list[np.ndarray]:
        names = self._condition.names(self.source)
        unknown = dict.fromkeys(names)
        found = [np.empty(0, np.int64)]
        start = 0
        for columns in read_fields(self.source, names, self.length):
            for name, array in zip(names, columns.columns, strict=True):
                if array.null_count < len(array):
                    unknown.pop(name, None)
            found.append(start + self._condition.rows(columns))
            start += columns.num_rows
        if self.length:
            for name in unknown:
                refuse_unknown(self.source, name)
        return [np.concatenate(found)]


class Matched(RuleView):
    """The records for which a condition holds."""
