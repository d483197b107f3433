"""Finding every record once, so that any of them can be fetched by its number."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.index._aside import put_aside_in as put_aside_in
    from penstock.index._aside import refuse_put_aside as refuse_put_aside
    from penstock.index._build import BuildOptions as BuildOptions
    from penstock.index._build import Mode as Mode
    from penstock.index._detect import Detected as Detected
    from penstock.index._detect import detect as detect
    from penstock.index._detect import look_at as look_at
    from penstock.index._detect import problems_of as problems_of
    from penstock.index._fingerprint import digest as digest
    from penstock.index._fingerprint import file_fingerprint as file_fingerprint
    from penstock.index._folder import leftover_problem as leftover_problem
    from penstock.index._folder import remove_leftover as remove_leftover
    from penstock.index._formats import CSV as CSV
    from penstock.index._formats import LINES as LINES
    from penstock.index._formats import PARQUET as PARQUET
    from penstock.index._formats import Format as Format
    from penstock.index._formats import format_by_name as format_by_name
    from penstock.index._formats import format_named as format_named
    from penstock.index._formats import load as load
    from penstock.index._formats import registered as registered
    from penstock.index._indexer import FileTextLinesIndexer as FileTextLinesIndexer
    from penstock.index._indexer import IndexStore as IndexStore
    from penstock.index._indexer import IndexStoreInterface as IndexStoreInterface
    from penstock.index._indexer import create_default_jsonl_indexer as create_default_jsonl_indexer
    from penstock.index._listing import Found as Found
    from penstock.index._listing import IndexPlace as IndexPlace
    from penstock.index._listing import Listing as Listing
    from penstock.index._listing import list_files as list_files
    from penstock.index._listing import place_of as place_of
    from penstock.index._load import read_meta as read_meta
    from penstock.index._meta import FileMeta as FileMeta
    from penstock.index._meta import Meta as Meta
    from penstock.index._meta import TokensMeta as TokensMeta
    from penstock.index._meta import decode_meta as decode_meta
    from penstock.index._names import DOCUMENT_FILES as DOCUMENT_FILES
    from penstock.index._names import TOKEN_FOLDER as TOKEN_FOLDER
    from penstock.index._names import rebuilding as rebuilding
    from penstock.index._open_index import exists as exists
    from penstock.index._open_index import load_beside as load_beside
    from penstock.index._open_index import load_place as load_place
    from penstock.index._open_index import local_folder as local_folder
    from penstock.index._open_index import make_index as make_index
    from penstock.index._open_index import open_or_build as open_or_build
    from penstock.index._parts import FilePart as FilePart
    from penstock.index._parts import LinePiece as LinePiece
    from penstock.index._parts import LinePieces as LinePieces
    from penstock.index._sample_generators import NOOPSampleGenerator as NOOPSampleGenerator
    from penstock.index._sample_generators import SampleData as SampleData
    from penstock.index._sample_generators import (
        SampleGeneratorInterface as SampleGeneratorInterface,
    )
    from penstock.index._sample_generators import noop_sample_processing as noop_sample_processing
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
    from penstock.index.checked._checks import JSON_NAMES as JSON_NAMES
    from penstock.index.checked._checks import Aside as Aside
    from penstock.index.checked._checks import BadLine as BadLine
    from penstock.index.checked._checks import Checks as Checks
    from penstock.index.checked._checks import Look as Look
    from penstock.index.checked._checks import read_bad_lines as read_bad_lines
    from penstock.index.csv._scan import CsvScanner as CsvScanner
    from penstock.index.csv._scan import scan_rows as scan_rows
    from penstock.index.profile._document import read_profile as read_profile
    from penstock.index.tokenizers._files import NamedTokenizer as NamedTokenizer
    from penstock.index.tokenizers._files import load_tokenizer as load_tokenizer
    from penstock.index.tokens._documents import get_text_from_jsonl as get_text_from_jsonl
    from penstock.index.tokens._generator import ProcessTextLineFunc as ProcessTextLineFunc
    from penstock.index.tokens._generator import (
        TokenizedSampleGenerator as TokenizedSampleGenerator,
    )
    from penstock.index.tokens._generator import TokenizerFunc as TokenizerFunc
    from penstock.index.tokens._job import TokenReport as TokenReport
    from penstock.index.tokens._journal import take_back_dead as take_back_dead
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

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "ArraySpec": "_sample_schema",
        "AuxDataGenerator": "tokens._with_aux",
        "BadLine": "checked._checks",
        "FileTextLinesIndexer": "_indexer",
        "IndexStore": "_indexer",
        "IndexStoreInterface": "_indexer",
        "LossMaskGenerator": "tokens._with_aux",
        "NOOPSampleGenerator": "_sample_generators",
        "Part": "tokens._with_aux",
        "ProcessPartsFunc": "tokens._with_aux",
        "ProcessTextLineFunc": "tokens._generator",
        "SampleData": "_sample_generators",
        "SampleGeneratorInterface": "_sample_generators",
        "SampleIndex": "_sample_index",
        "SampleLocation": "_sample_index",
        "SampleSchema": "_sample_schema",
        "TokenReport": "tokens._job",
        "TokenizedSampleGenerator": "tokens._generator",
        "TokenizedSampleWithAuxGenerator": "tokens._with_aux",
        "TokenizerFunc": "tokens._generator",
        "create_default_jsonl_indexer": "_indexer",
        "create_tokenize_and_index_jsonl_text_func": "tokens._tokenize",
        "create_tokenize_and_index_with_aux_func": "tokens._with_aux",
        "get_text_from_jsonl": "tokens._documents",
        "noop_sample_processing": "_sample_generators",
        "read_bad_lines": "checked._checks",
        "read_profile": "profile._document",
    },
    for_rooms={
        "Detected": "_detect",
        "detect": "_detect",
        "look_at": "_detect",
        "problems_of": "_detect",
        "CSV": "_formats",
        "LINES": "_formats",
        "PARQUET": "_formats",
        "Format": "_formats",
        "format_by_name": "_formats",
        "format_named": "_formats",
        "load": "_formats",
        "registered": "_formats",
        "Aside": "checked._checks",
        "BuildOptions": "_build",
        "DOCUMENT_FILES": "_names",
        "Changes": "_stale",
        "Checks": "checked._checks",
        "CsvScanner": "csv._scan",
        "Documents": "_sample_index",
        "FileMeta": "_meta",
        "Found": "_listing",
        "Hashed": "_stale",
        "JSON_NAMES": "checked._checks",
        "LARGEST_FRAME": "_scan",
        "LinePieces": "_parts",
        "LineScanner": "_scan",
        "Listing": "_listing",
        "Look": "checked._checks",
        "Meta": "_meta",
        "Mode": "_build",
        "NamedTokenizer": "tokenizers._files",
        "FilePart": "_parts",
        "LinePiece": "_parts",
        "IndexPlace": "_listing",
        "Scanner": "_scan",
        "TOKEN_FOLDER": "_names",
        "TokensMeta": "_meta",
        "changes": "_stale",
        "decode_meta": "_meta",
        "digest": "_fingerprint",
        "exists": "_open_index",
        "file_fingerprint": "_fingerprint",
        "hashed_files": "_stale",
        "leftover_problem": "_folder",
        "list_files": "_listing",
        "load_beside": "_open_index",
        "load_place": "_open_index",
        "load_tokenizer": "tokenizers._files",
        "local_folder": "_open_index",
        "make_index": "_open_index",
        "open_or_build": "_open_index",
        "place_of": "_listing",
        "put_aside_in": "_aside",
        "read_meta": "_load",
        "rebuilding": "_names",
        "refuse_put_aside": "_aside",
        "remove_leftover": "_folder",
        "rows_before": "_sample_index",
        "scan_rows": "csv._scan",
        "take_back_dead": "tokens._journal",
    },
)
