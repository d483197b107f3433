"""The types of fields that columns are made of: as given, or as the profile or the schema says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.bench._fields import field_types
from penstock.datasets import known_profile, profile_types, typed_schema
from penstock.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets import Source


def schema_of(given: dict[str, str | None], source: Source) -> pa.Schema:
    """Return all fields with their Arrow types; an `OptionError` names one that has none."""
    types = _types(given, source)
    for name, type_ in types.items():
        try:
            typed_schema({name: type_})
        except OptionError as why:
            raise OptionError(f"field {name!r}: {why}") from None
    schema = typed_schema(types)
    assert schema is not None  # noqa: S101 (each has its type)
    return schema


def _types(given: dict[str, str | None], source: Source) -> dict[str, str]:
    """Return a type for each field: the one given, or what is known of it."""
    known = {name: type_ for name, type_ in given.items() if type_ is not None}
    if len(known) == len(given):
        return known
    is_certain = source.schema_is_complete
    profile = None if is_certain else known_profile(source)
    if profile is not None:
        found = profile_types(profile.document)
        odd = next((name for name in given if name in found.left_out and name not in known), None)
        if odd is not None:
            raise OptionError(f"{odd} has no type of its own: {found.left_out[odd]}. Give it one.")
        known = found.types | known
    return field_types({name: known.get(name) for name in given}, source.schema)
