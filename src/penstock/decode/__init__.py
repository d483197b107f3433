"""JSON text into Arrow record batches: the columns asked for, or a schema that widens."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.decode._as_records import as_records as as_records
    from penstock.decode._as_records import as_values as as_values
    from penstock.decode._assemble import empty_batch as empty_batch
    from penstock.decode._bad_rows import OF_A_RECORD as OF_A_RECORD
    from penstock.decode._bad_rows import bad_rows as bad_rows
    from penstock.decode._bad_rows import read_around_bad as read_around_bad
    from penstock.decode._columns import HOLDS_ALL as HOLDS_ALL
    from penstock.decode._fit import fit_batch as fit_batch
    from penstock.decode._inferring import InferringDecoder as InferringDecoder
    from penstock.decode._pandas import keep_pandas_out as keep_pandas_out
    from penstock.decode._records import OnBad as OnBad
    from penstock.decode._records import decode_as_json as decode_as_json
    from penstock.decode._records import decode_fast as decode_fast
    from penstock.decode._records import decode_line as decode_line
    from penstock.decode._text import blank_lines as blank_lines
    from penstock.decode._text import is_utf8 as is_utf8
    from penstock.decode._typed import TypedDecoder as TypedDecoder
    from penstock.decode._unify import WholeSchema as WholeSchema
    from penstock.decode._unify import unify as unify
    from penstock.decode._value_types import JSON as JSON
    from penstock.decode._value_types import TEXT as TEXT
    from penstock.decode._value_types import ValueType as ValueType
    from penstock.decode._value_types import json_texts as json_texts
    from penstock.decode._value_types import plain_columns as plain_columns
    from penstock.decode._value_types import plain_type as plain_type
    from penstock.decode._values import inferred_batch as inferred_batch
    from penstock.decode._values import typed_batch as typed_batch

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "HOLDS_ALL": "_columns",
        "JSON": "_value_types",
        "InferringDecoder": "_inferring",
        "OF_A_RECORD": "_bad_rows",
        "OnBad": "_records",
        "TEXT": "_value_types",
        "TypedDecoder": "_typed",
        "ValueType": "_value_types",
        "WholeSchema": "_unify",
        "as_records": "_as_records",
        "as_values": "_as_records",
        "bad_rows": "_bad_rows",
        "blank_lines": "_text",
        "decode_as_json": "_records",
        "decode_fast": "_records",
        "decode_line": "_records",
        "empty_batch": "_assemble",
        "fit_batch": "_fit",
        "inferred_batch": "_values",
        "is_utf8": "_text",
        "json_texts": "_value_types",
        "keep_pandas_out": "_pandas",
        "plain_columns": "_value_types",
        "plain_type": "_value_types",
        "read_around_bad": "_bad_rows",
        "typed_batch": "_values",
        "unify": "_unify",
    },
)
