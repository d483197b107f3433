"""The recipe for what a user gives as `encode`, checked against the source."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._words import warn_once
from penstock.batch import Encoder, FieldEncoder, SimpleEncoder, has_stages
from penstock.datasets import (
    Concatenated,
    Source,
    is_tokens,
    known_profile,
    missing_fields,
    profile_types,
    refuse_numbers,
    schema_of,
    type_at,
)
from penstock.errors import CorruptIndexError, OptionError
from penstock.loading._fetch import check_missing, warn_of
from penstock.loading._order_choice import lies_remote
from penstock.loading._recipes import (
    ArrowRecipe,
    CallRecipe,
    CollateRecipe,
    DictRecipe,
    EncoderRecipe,
    SampleRecipe,
    TokenRecipe,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.loading._recipes import Recipe

_log = logging.getLogger("penstock.loading")


def recipe_for(
    source: Any,  # noqa: ANN401 (a `Source`, or what has a feed of its own)
    encode: Any,  # noqa: ANN401 (what a user may give)
    output: str | None,
    collate: Any = None,  # noqa: ANN401 (what a user may give)
) -> tuple[Any, Recipe]:
    """Return the records that a loader goes over, and how they become batches.

    A field that no record seems to have is refused, unless its type says that it may be missing.
    """
    if output not in (None, "arrow"):
        raise OptionError(f"output={output!r}: expected None or 'arrow'.")
    if collate is not None:
        return source, _collated(collate, encode, output)
    if encode is None:
        return source, ArrowRecipe() if output else _as_it_is(source)
    if output is not None and not isinstance(encode, Mapping | Sequence):
        raise OptionError("output='arrow' hands columns out as they are: leave encode out.")
    encoder = _encoder(encode, source)
    if hasattr(encoder, "bind"):
        source, encoder = encoder.bind(source)
    recipe: Recipe
    if output is not None:
        recipe = ArrowRecipe(encoder.fields)
    else:
        recipe = EncoderRecipe(encoder) if has_stages(encoder) else CallRecipe(encoder)
    recipe.types = _type_texts(encoder)
    if isinstance(source, Source) and not hasattr(encoder, "loose_fields"):
        _look_for(_names(getattr(encoder, "fields", None)), source, recipe.types)
    return source, recipe


def _collated(collate: Any, encode: object, output: object) -> Recipe:  # noqa: ANN401
    if encode is not None or output is not None:
        raise OptionError("collate makes the whole batch: leave encode and output out.")
    if not callable(collate):
        raise OptionError(f"collate={collate!r}: expected a function from a list of records.")
    return CollateRecipe(collate)


def _encoder(encode: Any, source: Source) -> Any:  # noqa: ANN401 (what a user may give)
    """Return an encoder for field types or names; what encodes already, as it is."""
    if isinstance(encode, str):
        raise OptionError(f"encode={encode!r}: for one field write [{encode!r}].")
    if isinstance(encode, Mapping):
        return FieldEncoder(encode)
    if isinstance(encode, Sequence):
        if not isinstance(source, Source):
            raise OptionError(
                f"encode={encode!r}: these records only flow, and their types are not known. Give "
                "types, as in {'price': 'float32'}."
            )
        return _by_name(list(encode), source)
    if isinstance(encode, type) and hasattr(encode, "fields"):
        name = encode.__qualname__
        raise OptionError(f"encode={name} is a class: give one of its objects, as in {name}(…).")
    if not isinstance(encode, Encoder | SimpleEncoder) and not callable(encode):
        raise OptionError(
            f"encode={encode!r}: expected field types as in {{'price': 'float32'}}, a list of "
            "names, a callable from an Arrow record batch to tensors, or an object with `fields` "
            "and either `arrays` and `batch` or `encode` (penstock.batch.Encoder)."
        )
    return encode


def _as_it_is(source: Source) -> Recipe:
    """Return what a batch is without an encoder: records, or tokens as they are stored."""
    if not is_tokens(source):
        return DictRecipe()
    return SampleRecipe() if source.sample_size is None else TokenRecipe()


def _by_name(names: list[str], source: Source) -> FieldEncoder:
    """Return an encoder with the types that the profile has seen, or else that the schema says."""
    schema = schema_of(source, names)
    if not len(source):
        # Without records nothing is known of the types, and nothing is needed.
        types = {name: type_at(schema, name) for name in names}
        names = [name for name, type_ in types.items() if type_ not in (None, pa.null())]
    seen = _seen_types(names, source)
    unseen = [(name, type_at(schema, name) or pa.null()) for name in names if name not in seen]
    refuse_numbers(pa.schema(unseen), source)
    others = FieldEncoder.from_schema([name for name in names if name not in seen], schema)
    encoder = FieldEncoder({name: seen.get(name) or others.types[name] for name in names})
    _log.info("types of fields, from the %s: %s", "profile" if seen else "schema", encoder)
    return encoder


def _seen_types(names: list[str], source: Source) -> dict[str, str]:
    """Return the types of those fields that a profile of all records knows."""
    if source.schema_is_complete:
        return {}
    try:
        profile = known_profile(source)
    except CorruptIndexError as why:
        text = "types of fields are taken from the schema, not from the profile"
        warn_once(_log, f"{text}: {why}")
        return {}
    if profile is None:
        return {}
    types, left_out, *_ = profile_types(profile.document)
    for name in names:
        if name in left_out:
            raise OptionError(
                f"field {name!r} has no type of its own: {left_out[name]}. Give it one, as in "
                f"{{{name!r}: 'json'}}, which holds every value"
            )
    return {name: types[name] for name in names if name in types}


def _names(fields: object) -> list[str]:
    if isinstance(fields, pa.Schema):
        return list(fields.names)
    if isinstance(fields, Mapping | Sequence) and not isinstance(fields, str):
        return [name for name in fields if isinstance(name, str)]
    return []  # All fields, or an invalid value, which reading refuses.


def _type_texts(encoder: Any) -> dict[str, str]:  # noqa: ANN401 (what a user may give)
    """Return the fields whose types are texts, which can say that a field may be missing."""
    types = getattr(encoder, "types", None) or getattr(encoder, "fields", None)
    given = types.items() if isinstance(types, Mapping) else ()
    return {name: type_ for name, type_ in given if isinstance(type_, str)}


def _look_for(names: Collection[str], source: Source, types: Mapping[str, str]) -> None:
    if lies_remote(source) and not source.schema_is_complete:
        return  # Nothing is fetched now: `Fetch` looks at its first batch.
    if isinstance(source, Concatenated) and source.names:
        # Sources of a mixture have little in common: types that exclude each other are named.
        schema_of(source, [name for name in names if types.get(name) not in ("text", "json")])
    found = [one for one in missing_fields(source, names) if one.is_certain or len(source)]
    check_missing(found, types)
    warn_of(found)
