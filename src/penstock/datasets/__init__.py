"""Any record by number: sources, and views of them."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.datasets._arrow import lies_in_files, read_fields
    from penstock.datasets._concatenated import Concatenated, schema_of
    from penstock.datasets._memory import ListSource, RecordsAt, RowsAt
    from penstock.datasets._missing_fields import Missing, missing_fields
    from penstock.datasets._once import Once, kept_arrays
    from penstock.datasets._open import open, open_found  # noqa: A004 (as users know it)
    from penstock.datasets._profile_source import keep_profile, known_profile, profile_of
    from penstock.datasets._projection import typed_schema
    from penstock.datasets._source import Location as Location
    from penstock.datasets._source import Source as Source
    from penstock.datasets._stream import Stream as Stream
    from penstock.datasets._stream import TorchWorker, as_stream, stream
    from penstock.datasets._subsampled import SubsampledDataset as SubsampledDataset
    from penstock.datasets._table_source import plain_table
    from penstock.datasets._values import values_of
    from penstock.datasets._views import Chosen, bare_origins, fingerprint_of, origins_of
    from penstock.datasets._vocabulary import root_of, vocabulary
    from penstock.datasets.columns._materialize import (
        ListedColumn,
        columns_of,
        drop_columns_of,
        estimate_columns,
        files_of_entry,
        list_columns_of,
        missing_columns,
    )
    from penstock.datasets.columns._materialized import (
        gone_columns,
        known_bad,
        knows_bad,
        without_columns,
    )
    from penstock.datasets.columns._place import column_folders, state_of
    from penstock.datasets.fields._grammar import GRAMMAR, meant, parsed
    from penstock.datasets.fields._paths import closest, paths_in, type_at, without_maps
    from penstock.datasets.fields._profile_types import profile_types
    from penstock.datasets.fields._tensor_types import (
        CategoryType,
        Dense,
        FieldType,
        Json,
        ListOf,
        NumberType,
        Optional,
        TextsType,
        UpTo,
        may_be_missing,
        number_in,
        type_text,
    )
    from penstock.datasets.mds._rows import MdsRows as MdsRows
    from penstock.datasets.megatron._tokens import MegatronTokens as MegatronTokens
    from penstock.datasets.tables._heads import read_head
    from penstock.datasets.tables._rows import ArrowRows as ArrowRows
    from penstock.datasets.tables._rows import AvroRows as AvroRows
    from penstock.datasets.tables._rows import OrcRows as OrcRows
    from penstock.datasets.tables._rows import ParquetRows as ParquetRows
    from penstock.datasets.text._csv import CsvRows as CsvRows
    from penstock.datasets.text._dataset import Dataset as Dataset
    from penstock.datasets.text._jsonl import JsonlDataset as JsonlDataset
    from penstock.datasets.text._line_numbers import line_of
    from penstock.datasets.tokens._dataset import TokensDataset as TokensDataset
    from penstock.datasets.tokens._source import TokenSource as TokenSource
    from penstock.datasets.tokens._source import is_tokens
    from penstock.datasets.tokens._views import named_sources
    from penstock.datasets.tokens._with_aux import TokensWithAuxDataset as TokensWithAuxDataset
    from penstock.datasets.where._where import TextCondition

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_source": "Location Source",
        "_stream": "Stream",
        "_subsampled": "SubsampledDataset",
        "mds._rows": "MdsRows",
        "megatron._tokens": "MegatronTokens",
        "tables._rows": "ArrowRows AvroRows OrcRows ParquetRows",
        "text._csv": "CsvRows",
        "text._dataset": "Dataset",
        "text._jsonl": "JsonlDataset",
        "tokens._dataset": "TokensDataset",
        "tokens._source": "TokenSource",
        "tokens._with_aux": "TokensWithAuxDataset",
    },
    for_rooms={
        "_arrow": "lies_in_files read_fields",
        "_concatenated": "Concatenated schema_of",
        "_memory": "ListSource RecordsAt RowsAt",
        "_missing_fields": "Missing missing_fields",
        "_once": "Once kept_arrays",
        "_open": "open open_found",
        "_profile_source": "keep_profile known_profile profile_of",
        "_projection": "typed_schema",
        "_stream": "TorchWorker as_stream stream",
        "_table_source": "plain_table",
        "_values": "values_of",
        "_views": "Chosen bare_origins fingerprint_of origins_of",
        "_vocabulary": "root_of vocabulary",
        "columns._materialize": (
            "ListedColumn columns_of drop_columns_of estimate_columns files_of_entry "
            "list_columns_of missing_columns"
        ),
        "columns._materialized": "gone_columns known_bad knows_bad without_columns",
        "columns._place": "column_folders state_of",
        "fields._grammar": "GRAMMAR meant parsed",
        "fields._paths": "closest paths_in type_at without_maps",
        "fields._profile_types": "profile_types",
        "fields._tensor_types": (
            "CategoryType Dense FieldType Json ListOf NumberType Optional TextsType UpTo "
            "may_be_missing number_in type_text"
        ),
        "tables._heads": "read_head",
        "text._line_numbers": "line_of",
        "tokens._source": "is_tokens",
        "tokens._views": "named_sources",
        "where._where": "TextCondition",
    },
)
