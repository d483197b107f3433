"""Finding every record once, so that any of them can be fetched by its number."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.index._array import ArrayScanner as ArrayScanner
    from penstock.index._array import check_elements as check_elements
    from penstock.index._build import BuildOptions as BuildOptions
    from penstock.index._build import Mode as Mode
    from penstock.index._detect import Detected as Detected
    from penstock.index._detect import look_at as look_at
    from penstock.index._detect import problems_of as problems_of
    from penstock.index._detect import records_beside as records_beside
    from penstock.index._fingerprint import digest as digest
    from penstock.index._fingerprint import file_fingerprint as file_fingerprint
    from penstock.index._folder import leftover_problem as leftover_problem
    from penstock.index._folder import put_aside_in as put_aside_in
    from penstock.index._folder import refuse_put_aside as refuse_put_aside
    from penstock.index._folder import remove_leftover as remove_leftover
    from penstock.index._formats import CSV as CSV
    from penstock.index._formats import LINES as LINES
    from penstock.index._formats import PARQUET as PARQUET
    from penstock.index._formats import Format as Format
    from penstock.index._formats import format_by_name as format_by_name
    from penstock.index._formats import format_named as format_named
    from penstock.index._formats import load as load
    from penstock.index._heads import check_heads as check_heads
    from penstock.index._indexer import FileTextLinesIndexer as FileTextLinesIndexer
    from penstock.index._indexer import IndexStore as IndexStore
    from penstock.index._indexer import IndexStoreInterface as IndexStoreInterface
    from penstock.index._indexer import NOOPSampleGenerator as NOOPSampleGenerator
    from penstock.index._indexer import SampleData as SampleData
    from penstock.index._indexer import SampleGeneratorInterface as SampleGeneratorInterface
    from penstock.index._indexer import create_default_jsonl_indexer as create_default_jsonl_indexer
    from penstock.index._indexer import noop_sample_processing as noop_sample_processing
    from penstock.index._listing import INDEX_FOLDER as INDEX_FOLDER
    from penstock.index._listing import INDEXER_ENDINGS as INDEXER_ENDINGS
    from penstock.index._listing import Found as Found
    from penstock.index._listing import IndexPlace as IndexPlace
    from penstock.index._listing import Listing as Listing
    from penstock.index._listing import list_files as list_files
    from penstock.index._listing import place_of as place_of
    from penstock.index._load import meta_of as meta_of
    from penstock.index._load import read_meta as read_meta
    from penstock.index._meta import FileMeta as FileMeta
    from penstock.index._meta import Meta as Meta
    from penstock.index._meta import TokensMeta as TokensMeta
    from penstock.index._names import COLUMNS as COLUMNS
    from penstock.index._names import DOCUMENT_FILES as DOCUMENT_FILES
    from penstock.index._names import ROWS as ROWS
    from penstock.index._names import TOKEN_FOLDER as TOKEN_FOLDER
    from penstock.index._names import rebuilding as rebuilding
    from penstock.index._open_index import exists as exists
    from penstock.index._open_index import load_beside as load_beside
    from penstock.index._open_index import load_place as load_place
    from penstock.index._open_index import make_index as make_index
    from penstock.index._parts import FilePart as FilePart
    from penstock.index._parts import LinePiece as LinePiece
    from penstock.index._parts import opened_lines as opened_lines
    from penstock.index._parts import parts_of as parts_of
    from penstock.index._refresh import Refresh as Refresh
    from penstock.index._refresh import is_own as is_own
    from penstock.index._refresh import open_or_build as open_or_build
    from penstock.index._sample_index import Documents as Documents
    from penstock.index._sample_index import SampleIndex as SampleIndex
    from penstock.index._sample_index import SampleLocation as SampleLocation
    from penstock.index._sample_index import rows_before as rows_before
    from penstock.index._sample_schema import ArraySpec as ArraySpec
    from penstock.index._sample_schema import SampleSchema as SampleSchema
    from penstock.index._scan import LARGEST_FRAME as LARGEST_FRAME
    from penstock.index._scan import LineScanner as LineScanner
    from penstock.index._scan import Scanner as Scanner
    from penstock.index._stale import Changes as Changes
    from penstock.index._stale import Hashed as Hashed
    from penstock.index._stale import changes as changes
    from penstock.index._stale import hashed_files as hashed_files
    from penstock.index.checked._build import LineCheck as LineCheck
    from penstock.index.checked._checks import JSON_NAMES as JSON_NAMES
    from penstock.index.checked._checks import BadLine as BadLine
    from penstock.index.checked._checks import Checks as Checks
    from penstock.index.checked._checks import Look as Look
    from penstock.index.checked._checks import read_bad_lines as read_bad_lines
    from penstock.index.csv._scan import CsvScanner as CsvScanner
    from penstock.index.csv._scan import scan_rows as scan_rows
    from penstock.index.profile._document import read_profile as read_profile
    from penstock.index.tokenizers._files import NamedTokenizer as NamedTokenizer
    from penstock.index.tokenizers._files import load_tokenizer as load_tokenizer
    from penstock.index.tokenizers._tokenizer import TokenizerFunc as TokenizerFunc
    from penstock.index.tokens._generator import (
        TokenizedSampleGenerator as TokenizedSampleGenerator,
    )
    from penstock.index.tokens._inputs import input_of as input_of
    from penstock.index.tokens._job import TokenReport as TokenReport
    from penstock.index.tokens._texts import ProcessTextLineFunc as ProcessTextLineFunc
    from penstock.index.tokens._texts import get_text_from_jsonl as get_text_from_jsonl
    from penstock.index.tokens._tokenize import (
        create_tokenize_and_index_jsonl_text_func as create_tokenize_and_index_jsonl_text_func,
    )
    from penstock.index.tokens._with_aux import AuxDataGenerator as AuxDataGenerator
    from penstock.index.tokens._with_aux import LossMaskGenerator as LossMaskGenerator
    from penstock.index.tokens._with_aux import Part as Part
    from penstock.index.tokens._with_aux import ProcessPartsFunc as ProcessPartsFunc
    from penstock.index.tokens._with_aux import (
        TokenizedSampleWithAuxGenerator as TokenizedSampleWithAuxGenerator,
    )
    from penstock.index.tokens._with_aux import (
        create_tokenize_and_index_with_aux_func as create_tokenize_and_index_with_aux_func,
    )

_PUBLIC = {
    "_indexer": "FileTextLinesIndexer IndexStore IndexStoreInterface NOOPSampleGenerator "
    "SampleData SampleGeneratorInterface create_default_jsonl_indexer noop_sample_processing",
    "_sample_index": "SampleIndex SampleLocation",
    "_sample_schema": "ArraySpec SampleSchema",
    "checked._checks": "BadLine read_bad_lines",
    "profile._document": "read_profile",
    "tokenizers._tokenizer": "TokenizerFunc",
    "tokens._job": "TokenReport",
    "tokens._texts": "ProcessTextLineFunc get_text_from_jsonl",
    "tokens._generator": "TokenizedSampleGenerator",
    "tokens._tokenize": "create_tokenize_and_index_jsonl_text_func",
    "tokens._with_aux": "AuxDataGenerator LossMaskGenerator Part ProcessPartsFunc "
    "TokenizedSampleWithAuxGenerator create_tokenize_and_index_with_aux_func",
}
_FOR_ROOMS = {
    "_build": "BuildOptions Mode",
    "_array": "ArrayScanner check_elements",
    "_detect": "Detected look_at problems_of records_beside",
    "_fingerprint": "digest file_fingerprint",
    "_folder": "leftover_problem put_aside_in refuse_put_aside remove_leftover",
    "_formats": "CSV Format LINES PARQUET format_by_name format_named load",
    "_heads": "check_heads",
    "_listing": "Found INDEXER_ENDINGS INDEX_FOLDER IndexPlace Listing list_files place_of",
    "_load": "meta_of read_meta",
    "_meta": "FileMeta Meta TokensMeta",
    "_names": "COLUMNS DOCUMENT_FILES ROWS TOKEN_FOLDER rebuilding",
    "_open_index": "exists load_beside load_place make_index",
    "_parts": "FilePart LinePiece opened_lines parts_of",
    "_refresh": "Refresh is_own open_or_build",
    "_sample_index": "Documents rows_before",
    "_scan": "LARGEST_FRAME LineScanner Scanner",
    "_stale": "Changes Hashed changes hashed_files",
    "checked._build": "LineCheck",
    "checked._checks": "Checks JSON_NAMES Look",
    "csv._scan": "CsvScanner scan_rows",
    "tokenizers._files": "NamedTokenizer load_tokenizer",
    "tokens._inputs": "input_of",
}
"""What only other rooms use."""


def _by_name(modules: dict[str, str]) -> dict[str, str]:
    return {name: module for module, names in modules.items() for name in names.split()}


__all__, __getattr__, __dir__ = facade(__name__, _by_name(_PUBLIC), _by_name(_FOR_ROOMS))
