"""Any record by number: sources, and views of them."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.datasets._csv import CsvRows as CsvRows
    from penstock.datasets._dataset import Dataset as Dataset
    from penstock.datasets._field_paths import paths_in as paths_in
    from penstock.datasets._field_paths import type_at as type_at
    from penstock.datasets._jsonl import JsonlDataset as JsonlDataset
    from penstock.datasets._memory import ListSource as ListSource
    from penstock.datasets._missing_fields import Missing as Missing
    from penstock.datasets._missing_fields import missing_fields as missing_fields
    from penstock.datasets._open import open as open  # noqa: A004 (as users know it)
    from penstock.datasets._parquet import ParquetRows as ParquetRows
    from penstock.datasets._reading import read_fields as read_fields
    from penstock.datasets._source import Location as Location
    from penstock.datasets._source import Source as Source
    from penstock.datasets._subsampled import SubsampledDataset as SubsampledDataset
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
        "ParquetRows": "_parquet",
        "Source": "_source",
        "SubsampledDataset": "_subsampled",
    },
    for_rooms={
        "Chosen": "_views",
        "ListSource": "_memory",
        "Missing": "_missing_fields",
        "TextCondition": "_where",
        "missing_fields": "_missing_fields",
        "open": "_open",  # Known as penstock.open; a star import should not hide the built-in.
        "paths_in": "_field_paths",
        "read_fields": "_reading",
        "root_of": "_vocabulary",
        "type_at": "_field_paths",
        "vocabulary": "_vocabulary",
    },
)
