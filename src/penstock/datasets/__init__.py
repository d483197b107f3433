"""Any record by number: sources, and views of them."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.datasets._column_folder import ColumnMeta as ColumnMeta
    from penstock.datasets._column_place import column_folders as column_folders
    from penstock.datasets._column_units import is_stream as is_stream
    from penstock.datasets._csv import CsvRows as CsvRows
    from penstock.datasets._dataset import Dataset as Dataset
    from penstock.datasets._field_paths import paths_in as paths_in
    from penstock.datasets._field_paths import type_at as type_at
    from penstock.datasets._field_types import type_text as type_text
    from penstock.datasets._jsonl import JsonlDataset as JsonlDataset
    from penstock.datasets._materialize import ListedColumn as ListedColumn
    from penstock.datasets._materialize import columns_of as columns_of
    from penstock.datasets._materialize import drop_columns_in as drop_columns_in
    from penstock.datasets._materialize import drop_columns_of as drop_columns_of
    from penstock.datasets._materialize import estimate_columns as estimate_columns
    from penstock.datasets._materialize import list_columns_in as list_columns_in
    from penstock.datasets._materialize import list_columns_of as list_columns_of
    from penstock.datasets._materialize import missing_columns as missing_columns
    from penstock.datasets._materialize_estimate import ColumnsEstimate as ColumnsEstimate
    from penstock.datasets._materialized import Materialized as Materialized
    from penstock.datasets._materialized import gone_columns as gone_columns
    from penstock.datasets._materialized import has_columns as has_columns
    from penstock.datasets._materialized import known_bad as known_bad
    from penstock.datasets._materialized import knows_bad as knows_bad
    from penstock.datasets._materialized import origins_of as origins_of
    from penstock.datasets._materialized import without_columns as without_columns
    from penstock.datasets._mds import MdsRows as MdsRows
    from penstock.datasets._mds import is_mds as is_mds
    from penstock.datasets._mds_index import is_shard as is_shard
    from penstock.datasets._megatron import MegatronTokens as MegatronTokens
    from penstock.datasets._memory import ListSource as ListSource
    from penstock.datasets._missing_fields import Missing as Missing
    from penstock.datasets._missing_fields import missing_fields as missing_fields
    from penstock.datasets._open import open as open  # noqa: A004 (as users know it)
    from penstock.datasets._parquet import ParquetRows as ParquetRows
    from penstock.datasets._profile_source import KnownProfile as KnownProfile
    from penstock.datasets._profile_source import keep_profile as keep_profile
    from penstock.datasets._profile_source import known_profile as known_profile
    from penstock.datasets._profile_source import profile_of as profile_of
    from penstock.datasets._profile_types import profile_types as profile_types
    from penstock.datasets._projection import typed_schema as typed_schema
    from penstock.datasets._reading import read_fields as read_fields
    from penstock.datasets._source import Location as Location
    from penstock.datasets._source import Source as Source
    from penstock.datasets._subsampled import SubsampledDataset as SubsampledDataset
    from penstock.datasets._tensor_grammar import GRAMMAR as GRAMMAR
    from penstock.datasets._tensor_grammar import parsed as parsed
    from penstock.datasets._tensor_types import Category as Category
    from penstock.datasets._tensor_types import Dense as Dense
    from penstock.datasets._tensor_types import FieldType as FieldType
    from penstock.datasets._tensor_types import ListOf as ListOf
    from penstock.datasets._tensor_types import Number as Number
    from penstock.datasets._tensor_types import Optional as Optional
    from penstock.datasets._tensor_types import Text as Text
    from penstock.datasets._tensor_types import UpTo as UpTo
    from penstock.datasets._tensor_types import number_in as number_in
    from penstock.datasets._token_source import TokenSource as TokenSource
    from penstock.datasets._tokens import TokensDataset as TokensDataset
    from penstock.datasets._views import Chosen as Chosen
    from penstock.datasets._vocabulary import root_of as root_of
    from penstock.datasets._vocabulary import vocabulary as vocabulary
    from penstock.datasets._where import TextCondition as TextCondition

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "CsvRows": "_csv",
        "Dataset": "_dataset",
        "JsonlDataset": "_jsonl",
        "Location": "_source",
        "MdsRows": "_mds",
        "MegatronTokens": "_megatron",
        "ParquetRows": "_parquet",
        "Source": "_source",
        "SubsampledDataset": "_subsampled",
        "TokenSource": "_token_source",
        "TokensDataset": "_tokens",
    },
    for_rooms={
        "Category": "_tensor_types",
        "Chosen": "_views",
        "ColumnMeta": "_column_folder",
        "ColumnsEstimate": "_materialize_estimate",
        "Dense": "_tensor_types",
        "FieldType": "_tensor_types",
        "GRAMMAR": "_tensor_grammar",
        "KnownProfile": "_profile_source",
        "ListOf": "_tensor_types",
        "ListSource": "_memory",
        "ListedColumn": "_materialize",
        "Materialized": "_materialized",
        "Missing": "_missing_fields",
        "Number": "_tensor_types",
        "Optional": "_tensor_types",
        "Text": "_tensor_types",
        "TextCondition": "_where",
        "UpTo": "_tensor_types",
        "column_folders": "_column_place",
        "columns_of": "_materialize",
        "drop_columns_in": "_materialize",
        "drop_columns_of": "_materialize",
        "estimate_columns": "_materialize",
        "gone_columns": "_materialized",
        "has_columns": "_materialized",
        "is_mds": "_mds",
        "is_shard": "_mds_index",
        "is_stream": "_column_units",
        "keep_profile": "_profile_source",
        "known_bad": "_materialized",
        "known_profile": "_profile_source",
        "knows_bad": "_materialized",
        "list_columns_in": "_materialize",
        "list_columns_of": "_materialize",
        "missing_columns": "_materialize",
        "missing_fields": "_missing_fields",
        "number_in": "_tensor_types",
        "open": "_open",  # Known as penstock.open; a star import should not hide the built-in.
        "origins_of": "_materialized",
        "parsed": "_tensor_grammar",
        "paths_in": "_field_paths",
        "profile_of": "_profile_source",
        "profile_types": "_profile_types",
        "read_fields": "_reading",
        "root_of": "_vocabulary",
        "type_at": "_field_paths",
        "type_text": "_field_types",
        "typed_schema": "_projection",
        "vocabulary": "_vocabulary",
        "without_columns": "_materialized",
    },
)
