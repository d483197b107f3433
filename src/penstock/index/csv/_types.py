"""Reads CSV text as columns, finds the types of columns, and checks what an index says of them."""

from __future__ import annotations

import re
from csv import QUOTE_MINIMAL, QUOTE_NONE
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock._words import counted
from penstock.decode import WHOLE_FLOATS, NumbersType, floats_equal
from penstock.errors import OptionError, SchemaMismatchError
from penstock.index._meta import Count  # noqa: TC001 (msgspec reads it)
from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Sized

    from penstock.index._meta import Meta

NULL, BOOL, INT, BIG, FLOAT, TEXT = "null", "bool", "int64", "integer", "float64", "string"
_WIDENING = (NULL, INT, BIG, FLOAT, TEXT)
_TYPES = {
    NULL: pa.null(),
    BOOL: pa.bool_(),
    INT: pa.int64(),
    # Integers beyond 64 bits stay exact as text, unless fractions make the column a float anyway.
    BIG: pa.string(),
    FLOAT: pa.float64(),
    TEXT: pa.string(),
}
_ATTEMPTS = _TYPES | {BIG: pa.float64()}
_Correction: TypeAlias = "tuple[str, str, Callable[..., pa.Scalar], str]"
"""The kind that Arrow finds, a pattern that any or all texts match, and the kind that is meant."""
# Arrow reads these as integers, but not as floats: they would not widen.
_HEXADECIMAL: _Correction = (INT, r"^[ \t]*-?0[xX]", pc.any, TEXT)
INTEGER = r"^[ \t]*-?[0-9]+[ \t]*$"
"""An expression for the text of an integer."""
_DIGITS_ONLY: _Correction = (FLOAT, INTEGER, pc.all, BIG)
_LONGEST_INTEGER = 300
"""Characters; floats end at 308 digits."""
_Sign: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\x01-\x09\x0b\x0c\x0e-\x7f]$")]
_KINDS = {pa.null(): NULL, pa.bool_(): BOOL, pa.int64(): INT, pa.float64(): FLOAT}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How rows are written."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_values: tuple[str, ...] = ()
    """Texts that stand for null, besides an empty field."""
    empty_text: bool = False
    """Whether an empty field of a text column is an empty text, unless `null_values` has it."""
    number_nulls: tuple[str, ...] = ()
    """Texts that stand for null as well, except in columns of text."""

    def check(self) -> None:
        signs: dict[str, object] = {"delimiter": self.delimiter}
        others = {"quote": self.quote, "escape": self.escape}
        signs |= {name: sign for name, sign in others.items() if sign is not None}
        for name, sign in signs.items():
            is_ascii = isinstance(sign, str) and len(sign) == 1 and sign.isascii()
            if not is_ascii or sign in {"\r", "\n", "\0"}:
                raise OptionError(
                    f"{name}={sign!r}: expected one ASCII character, no line break and no NUL."
                )
        if len(set(signs.values())) < len(signs):
            raise OptionError(
                f"delimiter, quote and escape must differ, not {signs}. A quote inside quotes is "
                "written twice; that needs no escape=."
            )

    def of_python(self) -> dict[str, Any]:
        """Return the same for Python's `csv`, which reads heads of files."""
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "escapechar": self.escape,
            "quoting": QUOTE_MINIMAL if self.quote else QUOTE_NONE,
        }

    def parse_options(
        self, on_ragged: Callable[[csv.InvalidRow], str] | None = None
    ) -> csv.ParseOptions:
        """Return the options of Arrow's parser; `on_ragged` handles rows with other fields."""
        return csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=True,
            invalid_row_handler=on_ragged,
        )

    def convert_options(
        self,
        types: dict[str, pa.DataType] | None = None,
        names: Sequence[str] | None = None,
        *,
        quoted_nulls: bool = True,
    ) -> csv.ConvertOptions:
        """Return how values are read; in columns of text, quotes make any value a text."""
        keeps_empty = self.empty_text and not quoted_nulls
        # Where no text is null, an empty field stays null in columns of other types.
        nulls = () if keeps_empty and self.null_values else ("",)
        can_be_null = not keeps_empty or bool(self.null_values)
        of_numbers = () if can_be_null and not quoted_nulls else self.number_nulls
        return csv.ConvertOptions(
            column_types=types,
            null_values=[*nulls, *self.null_values, *of_numbers],
            strings_can_be_null=can_be_null,
            quoted_strings_can_be_null=quoted_nulls,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            include_columns=names,
            include_missing_columns=names is not None,
        )


def read_options(text: Sized, names: Sequence[str]) -> csv.ReadOptions:
    """Return options that read a text as one block, in this thread."""
    return csv.ReadOptions(
        use_threads=False, column_names=names, block_size=min(len(text) + 1, (1 << 31) - 1)
    )


def first_row(text: bytes, dialect: Dialect) -> list[str]:
    """Return the fields of one row, as text.

    >>> first_row(b'a,"b, c"', Dialect())
    ['a', 'b, c']
    """
    text = whole_rows(text, dialect)
    options = csv.ReadOptions(use_threads=False, block_size=len(text) + 1)
    header = csv.read_csv(pa.py_buffer(text), options, dialect.parse_options())
    return list(header.column_names)


def whole_rows(text: bytes, dialect: Dialect) -> bytes:
    r"""Return rows as Arrow must get them to read them unchanged.

    The last one has a line end. Arrow drops one byte order mark at the beginning, and any escape:
    before a letter or a digit (`\N`, `C:\new`) there is nothing to escape, and it is text.

    >>> whole_rows("\ufeffa,b".encode(), Dialect()).decode()
    '\ufeff\ufeffa,b\n'
    >>> whole_rows(rb"\N,x\\y", Dialect(escape="\\"))
    b'\\\\N,x\\\\y\n'
    """
    text = with_line_end(text)
    if dialect.escape is not None and dialect.escape.encode() in text:
        sign = re.escape(dialect.escape).encode()
        odd = b"(?<!%b)(?:%b%b)*(%b)(?=[A-Za-z0-9])" % (sign, sign, sign, sign)
        text = re.sub(odd, rb"\g<0>\1", text)
    return BOM + text if text.startswith(BOM) else text


def with_line_end(text: bytes) -> bytes:
    """Return rows with a line end behind the last one."""
    return text if text.endswith((b"\n", b"\r")) else text + b"\n"


def wider_type(kinds: Iterable[str]) -> str:
    """Return the narrowest kind that holds the values of all.

    >>> wider_type(["int64", "null", "float64"]), wider_type(["bool", "int64"])
    ('float64', 'string')
    """
    seen = set(kinds) - {NULL}
    if BOOL in seen:
        return BOOL if seen == {BOOL} else TEXT
    return max(seen, key=_WIDENING.index, default=NULL)


def type_of(kind: str) -> pa.DataType:
    return _TYPES[kind]


def type_over_files(kinds: Mapping[str, str]) -> pa.DataType:
    """Return the type of a column for its kinds in files; each names a file with that kind.

    Integers and floats of different files stay what they are.
    """
    if {INT, FLOAT} <= kinds.keys() <= {NULL, INT, FLOAT}:
        return NumbersType.of([(pa.int64(), kinds[INT]), (pa.float64(), kinds[FLOAT])])
    return pa.string() if {BIG, FLOAT} <= kinds.keys() else type_of(wider_type(kinds))


class TypesSeen:
    """The types of the columns of one file, so far."""

    def __init__(
        self,
        names: Sequence[str],
        dialect: Dialect,
        kinds: Sequence[str] | None = None,
        large: Sequence[str] | None = (),
    ) -> None:
        self.names = list(names)
        self.kinds = [NULL] * len(self.names) if kinds is None else list(kinds)
        self._large, self._knows_large = set(large or ()), large is not None
        self._dialect = dialect

    @property
    def large(self) -> list[str] | None:
        """The columns of int64 with an integer that no float equals; None if that is not known."""
        if not self._knows_large:
            return None
        kinds = zip(self.names, self.kinds, strict=True)
        return [name for name, kind in kinds if kind == INT and name in self._large]

    def add(self, text: bytes) -> dict[int, int]:
        """Add whole rows; return those with another number of fields: row (from 0) → fields."""
        text = whole_rows(text, self._dialect)
        try:
            text.isascii() or text.decode()
        except UnicodeDecodeError:
            # Arrow fails to return a ragged row that is not UTF-8. The types do not change.
            text = text.decode("utf-8", "replace").encode()
        ragged: dict[int, int] = {}
        # Text stays text. One column is always read: that counts the fields of every row.
        open_ = [n for n, kind in zip(self.names, self.kinds, strict=True) if kind != TEXT]
        names = open_ or self.names[:1]
        known = {name: _ATTEMPTS[kind] for name, kind in zip(self.names, self.kinds, strict=True)}
        if not open_:
            known[names[0]] = pa.binary()
        try:
            # Mostly the known types hold.
            table = self._read(text, ragged, self._dialect.convert_options(known, names))
        except pa.ArrowInvalid:
            ragged = {}
            table = self._read(text, ragged, self._dialect.convert_options(names=names))
        types = dict(zip(table.column_names, table.schema.types, strict=True))
        found = [_KINDS.get(types.get(name), TEXT) for name in self.names]
        if b"0x" in text or b"0X" in text:
            found = self._corrected(text, found, _HEXADECIMAL)
        if any(FLOAT == new != old for new, old in zip(found, self.kinds, strict=True)):
            found = self._corrected(text, found, _DIGITS_ONLY)
        self._large |= self._large_in(text, table)
        wider = [wider_type(pair) for pair in zip(self.kinds, found, strict=True)]
        # Such integers next to fractions stay exact as text.
        self.kinds = [
            TEXT if kind == FLOAT and name in self._large else kind
            for name, kind in zip(self.names, wider, strict=True)
        ]
        return ragged

    def _read(self, text: bytes, ragged: dict[int, int], options: csv.ConvertOptions) -> pa.Table:
        def skip(row: csv.InvalidRow) -> str:
            ragged[row.number - 1] = row.actual_columns
            return "skip"

        parse = self._dialect.parse_options(skip)
        return csv.read_csv(pa.py_buffer(text), read_options(text, self.names), parse, options)

    def _large_in(self, text: bytes, table: pa.Table) -> set[str]:
        """Return the columns with an integer that no float equals."""
        found = set()
        for name, column in zip(table.column_names, table.columns, strict=True):
            if not pa.types.is_int64(column.type) and not pa.types.is_float64(column.type):
                continue
            least, most = (value or 0 for value in pc.min_max(column).as_py().values())
            if max(most, -least) < WHOLE_FLOATS:
                continue
            if pa.types.is_int64(column.type):
                is_large = not all(map(floats_equal, column.chunks))
            else:
                as_text = self._dialect.convert_options({name: pa.string()}, [name])
                is_wide = pc.greater_equal(pc.abs(column), WHOLE_FLOATS)
                texts = self._read(text, {}, as_text)[name].filter(is_wide).to_pylist()
                is_large = any(map(_is_no_float, texts))
            if is_large:
                found.add(name)
        return found

    def _corrected(self, text: bytes, found: list[str], rule: _Correction) -> list[str]:
        """Return `found`, with another kind for the columns of a rule."""
        kind, pattern, match, meant = rule
        names = [name for name, one in zip(self.names, found, strict=True) if one == kind]
        if not names:
            return found
        as_text = self._dialect.convert_options(dict.fromkeys(names, pa.binary()), names)
        texts = self._read(text, {}, as_text)
        matching = {name: pc.match_substring_regex(texts[name], pattern) for name in names}
        others = {n for n, found in matching.items() if match(found, min_count=0).as_py()}
        return [
            meant if name in others else one for name, one in zip(self.names, found, strict=True)
        ]


def _is_no_float(text: str) -> bool:
    """Whether a text is an integer that no float equals."""
    is_integer = re.fullmatch(INTEGER, text) is not None
    return is_integer and (len(text) > _LONGEST_INTEGER or float(text) != int(text))


class _CsvOptions(msgspec.Struct):
    delimiter: _Sign
    quote: _Sign | None
    escape: _Sign | None
    header: bool
    column_names: list[str] | None
    null_values: list[str] = []
    types: dict[str, str] = {}
    empty_text: bool = False
    number_nulls: list[str] = []


class _CsvFacts(msgspec.Struct):
    columns: list[str]
    types: list[Literal["null", "bool", "int64", "integer", "float64", "string"]]
    large: list[str] | None = None
    """Columns of int64 with an integer that no float equals; older indexes do not say."""
    ragged: Count = 0
    first_ragged: Count = 0
    misquoted: Count = 0
    first_misquoted: Count = 0
    merged: Count = 0
    first_merged: Count = 0


def check_columns(files: Iterable[tuple[str, Sequence[str]]], options: Mapping[str, Any]) -> None:
    """Raise where the columns of files, given with their paths, do not go together."""
    is_named = options["header"] or options["column_names"] is not None
    first, these = "", None
    for path, those in files:
        if these is None:
            first, these = path, those
        elif these != those and not is_named:
            raise SchemaMismatchError(
                f"{first} has {counted(len(these), 'column')} and {path} {len(those):,}, and "
                "without a header nothing says which are the same. Open them one by one with "
                "column_names=.",
                path=path,
            )
        elif these != those and set(these).isdisjoint(those):
            raise SchemaMismatchError(
                f"{first} and {path} have no column in common: {', '.join(these[:5])} … and "
                f"{', '.join(those[:5])} …. Has one of them no header (header=False), or another "
                "delimiter=?",
                path=path,
            )


def check_csv(meta: Meta) -> None:
    """Raise `msgspec.ValidationError` if an index does not describe its columns."""
    msgspec.convert(meta.options, _CsvOptions)
    for file in [*meta.files, *(file for file in meta.empty if file.facts)]:
        facts = msgspec.convert(file.facts, _CsvFacts)
        if len(facts.columns) != len(facts.types):
            raise msgspec.ValidationError(f"{file.path} has columns without types")
