"""Every format that is fuzzed, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.of_array import Array
from tests.fuzz.of_arrow import Arrow
from tests.fuzz.of_avro import Avro
from tests.fuzz.of_bz2 import Bz2
from tests.fuzz.of_columns import Columns
from tests.fuzz.of_csv import Csv
from tests.fuzz.of_gz import Gz
from tests.fuzz.of_index import Index
from tests.fuzz.of_jsonl import Jsonl
from tests.fuzz.of_mds import Mds
from tests.fuzz.of_megatron import Megatron
from tests.fuzz.of_orc import Orc
from tests.fuzz.of_parquet import Parquet
from tests.fuzz.of_state import State
from tests.fuzz.of_tokens import Tokens
from tests.fuzz.of_zst import Zst

if TYPE_CHECKING:
    from tests.fuzz._format import Format

SEED = 14

_ALL = (
    Jsonl, Zst, Gz, Bz2, Array, Csv, Parquet, Arrow, Orc, Avro, Index, Columns, Tokens, Megatron,
    Mds, State,
)  # fmt: skip
FORMATS: dict[str, type[Format]] = {form.name: form for form in _ALL}
