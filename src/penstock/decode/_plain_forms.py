"""Arrow's rarer forms of storage as those that its own functions take.

Arrow cannot take rows out of views of texts, its cast of list views leaves out their last offset
(pyarrow 26), and looking for nulls in a dictionary without a type ends the process.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode._assemble import (
    LISTS,
    is_any,
    list_array,
    list_items,
    list_lengths,
    map_array,
    null_rows,
    struct_array,
)

is_ = pa.types
_ENCODED = (
    "string", "large_string", "binary", "large_binary", "fixed_size_binary", "boolean", "integer",
    "floating", "temporal", "decimal128", "decimal256",
)  # fmt: skip
"""Values of which Arrow makes dictionaries."""


def plain_form(type_: pa.DataType) -> pa.DataType:
    """Return a type without views, and without dictionaries of values that are rare in them.

    >>> plain_form(pa.list_view(pa.dictionary(pa.int32(), pa.string_view())))
    ListType(list<item: dictionary<values=large_string, indices=int32, ordered=0>>)
    """
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    if is_.is_dictionary(type_):
        values = plain_form(type_.value_type)
        is_kept = is_any(values, _ENCODED)
        return pa.dictionary(type_.index_type, values, type_.ordered) if is_kept else values
    if isinstance(type_, pa.BaseExtensionType):
        storage = plain_form(type_.storage_type)
        return type_ if storage == type_.storage_type else storage
    if is_.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if is_.is_map(type_):
        key, item = _plain_field(type_.key_field), _plain_field(type_.item_field)
        return pa.map_(key, item, type_.keys_sorted)
    if is_.is_fixed_size_list(type_):
        return pa.list_(_plain_field(type_.value_field), type_.list_size)
    if is_any(type_, ("large_list", "large_list_view")):
        return pa.large_list(_plain_field(type_.value_field))
    return pa.list_(_plain_field(type_.value_field)) if is_any(type_, LISTS) else type_


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_form(field.type))


def to_plain_form(array: pa.Array) -> pa.Array:
    """Return an array under the plain form of its type."""
    # Only those that change: of a slice of lists of nothing but nulls, Arrow's cast loses values
    # even where the type stays as it is.
    type_ = plain_form(array.type)
    if array.type == type_:
        return array
    return _convert(array, type_) if len(array) else pa.nulls(0, type_)


def _convert(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if is_.is_dictionary(array.type):
        values = to_plain_form(array.dictionary)
        plain = pa.DictionaryArray.from_arrays(array.indices, values, ordered=array.type.ordered)
        return plain if is_.is_dictionary(type_) else to_plain_form(plain.dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        return to_plain_form(array.storage)
    if is_.is_struct(type_):
        parts = [to_plain_form(array.field(place)) for place in range(type_.num_fields)]
        return struct_array(parts, null_rows(array), type_)
    if is_.is_map(type_):
        offsets = array.offsets.to_numpy()
        entries = slice(offsets[0], offsets[-1])
        keys, items = to_plain_form(array.keys[entries]), to_plain_form(array.items[entries])
        lengths = pc.subtract(array.offsets[1:], array.offsets[:-1]).to_numpy()
        return map_array(lengths, null_rows(array), keys, items, type_)
    if is_.is_fixed_size_list(type_):
        rooms = slice(array.offset * type_.list_size, (array.offset + len(array)) * type_.list_size)
        items = to_plain_form(array.values[rooms])
        return list_array(list_lengths(array), null_rows(array), items, type_)
    if is_any(type_, LISTS):
        items = to_plain_form(list_items(array))
        return list_array(list_lengths(array), null_rows(array), items, type_)
    return array.cast(type_)
