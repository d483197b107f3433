"""What encodes the records of a source: checked against it, with its vocabularies."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.batch import FieldEncoder
from penstock.datasets import (
    known_profile,
    missing_fields,
    profile_types,
    root_of,
    type_at,
    vocabulary,
)
from penstock.errors import CorruptIndexError, OptionError
from penstock.loading._fetch import warn_of
from penstock.loading._order_choice import lies_remote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.datasets import Source

_log = logging.getLogger("penstock.loading")


def encoder_for(encode: Any, source: Source) -> Any:  # noqa: ANN401 (what a user may give)
    """Return an encoder for field types or names; what encodes already, as it is.

    A field that the source does not have is refused; where that is not certain, it is logged.
    """
    if isinstance(encode, Mapping):
        encode = FieldEncoder(encode)
    elif isinstance(encode, Sequence):
        encode = _by_name(list(encode), source)
    _look_for(_names(getattr(encode, "fields", None)), source)
    # A subclass has its own mind about what it encodes, and how it is copied.
    if type(encode) is not FieldEncoder or not encode.categories:
        return encode
    # That of a view would give other codes to the same values than the next view.
    root = root_of(source)
    length = len(root)
    return encode.with_vocabularies(
        {name: vocabulary(root, name, length) for name in encode.categories}
    )


def _by_name(names: list[str], source: Source) -> FieldEncoder:
    """Return an encoder with the types that the profile has seen, or else that the schema says."""
    schema = source.schema
    if not len(source):
        # Of no records nothing is known, and nothing is needed.
        types = {name: type_at(schema, name) for name in names}
        names = [name for name, type_ in types.items() if type_ not in (None, pa.null())]
    seen = _seen_types(names, source)
    others = FieldEncoder.from_schema([name for name in names if name not in seen], schema)
    encoder = FieldEncoder({name: seen.get(name) or others.types[name] for name in names})
    _log.info("types of fields, from the %s: %s", "profile" if seen else "schema", encoder)
    return encoder


def _seen_types(names: list[str], source: Source) -> dict[str, str]:
    """Return the types of those fields that a profile of all records knows."""
    if getattr(source, "schema_is_complete", False):
        return {}
    try:
        profile = known_profile(source)
    except CorruptIndexError as why:
        _log.warning("types of fields are taken from the schema, not from the profile: %s", why)
        return {}
    if profile is None:
        return {}
    types, left_out = profile_types(profile.document)
    for name in names:
        if name in left_out:
            raise OptionError(
                f"field {name!r} has no type that holds all its values: {left_out[name]}. Give it "
                f"one, as in {{{name!r}: 'string'}}"
            )
    return {name: types[name] for name in names if name in types}


def _names(fields: object) -> list[str]:
    if isinstance(fields, pa.Schema):
        return list(fields.names)
    if isinstance(fields, Mapping | Sequence) and not isinstance(fields, str):
        return [name for name in fields if isinstance(name, str)]
    return []  # All of them; or nothing that names a field, which reading says.


def _look_for(names: Iterable[str], source: Source) -> None:
    if lies_remote(source) and not getattr(source, "schema_is_complete", False):
        return  # Nothing is fetched before it is needed: `Fetch` looks at its first batch.
    for missing in missing_fields(source, names):
        if missing.is_certain:
            raise OptionError(f"{missing.text} Name one that is there, or leave it out")
        if len(source):
            warn_of(missing)
