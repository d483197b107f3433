"""JSON text into Arrow record batches: the columns asked for, or a schema that widens."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.decode._as_records import as_records, as_values
    from penstock.decode._assemble import LISTS, empty_batch, is_any, list_items
    from penstock.decode._bad_rows import OF_A_RECORD, bad_rows, read_around_bad
    from penstock.decode._columns import WHOLE_FLOATS
    from penstock.decode._fit import bad_texts, fit_batch, refuse_bad_texts, uuids_as_texts
    from penstock.decode._inferring import InferringDecoder
    from penstock.decode._nested_columns import typed_column
    from penstock.decode._numbers import (
        NUMBERS,
        NumbersType,
        batches_of_one_type,
        exact_type,
        floats_equal,
        numbers_array,
        numbers_in,
    )
    from penstock.decode._pandas import keep_pandas_out
    from penstock.decode._plain_forms import plain_form, to_plain_form
    from penstock.decode._records import (
        HOLDS_ALL,
        JSON_NAMES,
        OnBad,
        decode_as_json,
        decode_fast,
        decode_line,
    )
    from penstock.decode._text import blank_lines, is_utf8
    from penstock.decode._typed import TypedDecoder
    from penstock.decode._unify import WholeSchema, unify
    from penstock.decode._value_types import (
        JSON,
        TEXT,
        ValueType,
        json_texts,
        plain_columns,
        plain_type,
    )
    from penstock.decode._values import inferred_batch, typed_batch

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_as_records": "as_records as_values",
        "_assemble": "LISTS empty_batch is_any list_items",
        "_bad_rows": "OF_A_RECORD bad_rows read_around_bad",
        "_columns": "WHOLE_FLOATS",
        "_fit": "bad_texts fit_batch refuse_bad_texts uuids_as_texts",
        "_inferring": "InferringDecoder",
        "_nested_columns": "typed_column",
        "_numbers": (
            "NUMBERS NumbersType batches_of_one_type exact_type floats_equal numbers_array "
            "numbers_in"
        ),
        "_pandas": "keep_pandas_out",
        "_plain_forms": "plain_form to_plain_form",
        "_records": "HOLDS_ALL JSON_NAMES OnBad decode_as_json decode_fast decode_line",
        "_text": "blank_lines is_utf8",
        "_typed": "TypedDecoder",
        "_unify": "WholeSchema unify",
        "_value_types": "JSON TEXT ValueType json_texts plain_columns plain_type",
        "_values": "inferred_batch typed_batch",
    },
)
