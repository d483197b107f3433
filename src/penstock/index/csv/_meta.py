"""What an index of CSV says of its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from penstock.index._meta import Count  # noqa: TC001 (msgspec reads it)

if TYPE_CHECKING:
    from penstock.index._meta import Meta

_Sign: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\x01-\x09\x0b\x0c\x0e-\x7f]$")]


class _CsvOptions(msgspec.Struct):
    delimiter: _Sign
    quote: _Sign | None
    escape: _Sign | None
    header: bool
    column_names: list[str] | None
    null_values: list[str] = []
    types: dict[str, str] = {}


class _CsvFacts(msgspec.Struct):
    columns: list[str]
    types: list[Literal["null", "bool", "int64", "integer", "float64", "string"]]
    ragged: Count = 0
    first_ragged: Count = 0


def check_csv(meta: Meta) -> None:
    """Raise `msgspec.ValidationError` if an index does not describe its columns."""
    msgspec.convert(meta.options, _CsvOptions)
    for file in [*meta.files, *(file for file in meta.empty if file.facts)]:
        facts = msgspec.convert(file.facts, _CsvFacts)
        if len(facts.columns) != len(facts.types):
            raise msgspec.ValidationError(f"{file.path} has columns without types")
