"""Any record by number: sources, and views of them."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.datasets._arrow import read_fields as read_fields
    from penstock.datasets._memory import ListSource as ListSource
    from penstock.datasets._memory import RecordsAt as RecordsAt
    from penstock.datasets._missing_fields import Missing as Missing
    from penstock.datasets._missing_fields import missing_fields as missing_fields
    from penstock.datasets._open import open as open  # noqa: A004 (as users know it)
    from penstock.datasets._open import open_found as open_found
    from penstock.datasets._profile_source import keep_profile as keep_profile
    from penstock.datasets._profile_source import known_profile as known_profile
    from penstock.datasets._profile_source import profile_of as profile_of
    from penstock.datasets._projection import typed_schema as typed_schema
    from penstock.datasets._source import Location as Location
    from penstock.datasets._source import Source as Source
    from penstock.datasets._subsampled import SubsampledDataset as SubsampledDataset
    from penstock.datasets._views import Chosen as Chosen
    from penstock.datasets._views import origins_of as origins_of
    from penstock.datasets._vocabulary import root_of as root_of
    from penstock.datasets._vocabulary import vocabulary as vocabulary
    from penstock.datasets.columns._materialize import ListedColumn as ListedColumn
    from penstock.datasets.columns._materialize import columns_of as columns_of
    from penstock.datasets.columns._materialize import drop_columns_in as drop_columns_in
    from penstock.datasets.columns._materialize import drop_columns_of as drop_columns_of
    from penstock.datasets.columns._materialize import estimate_columns as estimate_columns
    from penstock.datasets.columns._materialize import files_of_entry as files_of_entry
    from penstock.datasets.columns._materialize import list_columns_in as list_columns_in
    from penstock.datasets.columns._materialize import list_columns_of as list_columns_of
    from penstock.datasets.columns._materialize import missing_columns as missing_columns
    from penstock.datasets.columns._materialized import gone_columns as gone_columns
    from penstock.datasets.columns._materialized import has_columns as has_columns
    from penstock.datasets.columns._materialized import known_bad as known_bad
    from penstock.datasets.columns._materialized import knows_bad as knows_bad
    from penstock.datasets.columns._materialized import without_columns as without_columns
    from penstock.datasets.columns._place import column_folders as column_folders
    from penstock.datasets.fields._grammar import GRAMMAR as GRAMMAR
    from penstock.datasets.fields._grammar import meant as meant
    from penstock.datasets.fields._grammar import parsed as parsed
    from penstock.datasets.fields._paths import closest as closest
    from penstock.datasets.fields._paths import paths_in as paths_in
    from penstock.datasets.fields._paths import type_at as type_at
    from penstock.datasets.fields._profile_types import profile_types as profile_types
    from penstock.datasets.fields._tensor_types import Category as Category
    from penstock.datasets.fields._tensor_types import Dense as Dense
    from penstock.datasets.fields._tensor_types import FieldType as FieldType
    from penstock.datasets.fields._tensor_types import Json as Json
    from penstock.datasets.fields._tensor_types import ListOf as ListOf
    from penstock.datasets.fields._tensor_types import Number as Number
    from penstock.datasets.fields._tensor_types import Optional as Optional
    from penstock.datasets.fields._tensor_types import Text as Text
    from penstock.datasets.fields._tensor_types import UpTo as UpTo
    from penstock.datasets.fields._tensor_types import may_be_missing as may_be_missing
    from penstock.datasets.fields._tensor_types import number_in as number_in
    from penstock.datasets.fields._tensor_types import type_text as type_text
    from penstock.datasets.mds._rows import MdsRows as MdsRows
    from penstock.datasets.megatron._tokens import MegatronTokens as MegatronTokens
    from penstock.datasets.parquet._parquet import ParquetRows as ParquetRows
    from penstock.datasets.text._csv import CsvRows as CsvRows
    from penstock.datasets.text._dataset import Dataset as Dataset
    from penstock.datasets.text._jsonl import JsonlDataset as JsonlDataset
    from penstock.datasets.tokens._dataset import TokensDataset as TokensDataset
    from penstock.datasets.tokens._source import TokenSource as TokenSource
    from penstock.datasets.tokens._source import is_tokens as is_tokens
    from penstock.datasets.tokens._with_aux import TokensWithAuxDataset as TokensWithAuxDataset
    from penstock.datasets.where._where import TextCondition as TextCondition

_FOR_ROOMS = {
    "_arrow": "read_fields",
    "_memory": "ListSource RecordsAt",
    "_missing_fields": "Missing missing_fields",
    "_open": "open open_found",
    "_profile_source": "keep_profile known_profile profile_of",
    "_projection": "typed_schema",
    "_views": "Chosen origins_of",
    "_vocabulary": "root_of vocabulary",
    "columns._materialize": (
        "ListedColumn columns_of drop_columns_in drop_columns_of estimate_columns "
        "files_of_entry list_columns_in list_columns_of missing_columns"
    ),
    "columns._materialized": ("gone_columns has_columns known_bad knows_bad without_columns"),
    "columns._place": "column_folders",
    "fields._grammar": "GRAMMAR meant parsed",
    "fields._paths": "closest paths_in type_at",
    "fields._profile_types": "profile_types",
    "fields._tensor_types": (
        "Category Dense FieldType Json ListOf Number Optional Text UpTo may_be_missing number_in "
        "type_text"
    ),
    "tokens._source": "is_tokens",
    "where._where": "TextCondition",
}
"""What only other rooms use: module and names."""

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "CsvRows": "text._csv",
        "Dataset": "text._dataset",
        "JsonlDataset": "text._jsonl",
        "Location": "_source",
        "MdsRows": "mds._rows",
        "MegatronTokens": "megatron._tokens",
        "ParquetRows": "parquet._parquet",
        "Source": "_source",
        "SubsampledDataset": "_subsampled",
        "TokenSource": "tokens._source",
        "TokensDataset": "tokens._dataset",
        "TokensWithAuxDataset": "tokens._with_aux",
    },
    for_rooms={name: module for module, names in _FOR_ROOMS.items() for name in names.split()},
)
