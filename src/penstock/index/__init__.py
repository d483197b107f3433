"""Finding every record once, so that any of them can be fetched by its number."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.index._aside import put_aside_in as put_aside_in
    from penstock.index._aside import refuse_put_aside as refuse_put_aside
    from penstock.index._bad_lines import BadLine as BadLine
    from penstock.index._bad_lines import read_bad_lines as read_bad_lines
    from penstock.index._blocks import LARGEST_FRAME as LARGEST_FRAME
    from penstock.index._build import BuildOptions as BuildOptions
    from penstock.index._build import Mode as Mode
    from penstock.index._fingerprint import digest as digest
    from penstock.index._fingerprint import file_fingerprint as file_fingerprint
    from penstock.index._folder import leftover_problem as leftover_problem
    from penstock.index._folder import remove_leftover as remove_leftover
    from penstock.index._index_store import IndexStore as IndexStore
    from penstock.index._index_store import IndexStoreInterface as IndexStoreInterface
    from penstock.index._indexer import FileTextLinesIndexer as FileTextLinesIndexer
    from penstock.index._indexer import SampleData as SampleData
    from penstock.index._indexer import SampleGeneratorInterface as SampleGeneratorInterface
    from penstock.index._indexer import create_default_jsonl_indexer as create_default_jsonl_indexer
    from penstock.index._line_pieces import LinePieces as LinePieces
    from penstock.index._line_pieces import Piece as Piece
    from penstock.index._listing import CSV as CSV
    from penstock.index._listing import JSONL as JSONL
    from penstock.index._listing import PARQUET as PARQUET
    from penstock.index._listing import Found as Found
    from penstock.index._listing import Listing as Listing
    from penstock.index._listing import list_files as list_files
    from penstock.index._load import kind_in as kind_in
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
    from penstock.index._parquet_groups import ranges_of as ranges_of
    from penstock.index._parquet_groups import read_group as read_group
    from penstock.index._parquet_scan import Footer as Footer
    from penstock.index._parquet_scan import UnifiedSchema as UnifiedSchema
    from penstock.index._parquet_scan import read_footer as read_footer
    from penstock.index._parquet_scan import read_footers as read_footers
    from penstock.index._place import Place as Place
    from penstock.index._place import place_of as place_of
    from penstock.index._sample_index import Documents as Documents
    from penstock.index._sample_index import SampleIndex as SampleIndex
    from penstock.index._sample_index import SampleLocation as SampleLocation
    from penstock.index._sample_index import rows_before as rows_before
    from penstock.index._scan import FileScan as FileScan
    from penstock.index._scan import LineScanner as LineScanner
    from penstock.index._scan import Scanner as Scanner
    from penstock.index._stale import Changes as Changes
    from penstock.index._stale import Hashed as Hashed
    from penstock.index._stale import changes as changes
    from penstock.index._stale import hashed_files as hashed_files
    from penstock.index.checked._checks import Aside as Aside
    from penstock.index.checked._checks import Checks as Checks
    from penstock.index.checked._checks import Look as Look
    from penstock.index.checked._line_check import JSON_NAMES as JSON_NAMES
    from penstock.index.checked._row_check import scan_rows as scan_rows
    from penstock.index.checked._units import Part as Part
    from penstock.index.csv._scan import CsvScanner as CsvScanner
    from penstock.index.csv._types import Dialect as Dialect
    from penstock.index.csv._types import convert_options as convert_options
    from penstock.index.csv._types import read_options as read_options
    from penstock.index.csv._types import type_of as type_of
    from penstock.index.csv._types import whole_rows as whole_rows
    from penstock.index.csv._types import wider_type as wider_type
    from penstock.index.csv._types import with_line_end as with_line_end
    from penstock.index.profile._files import decode_profile as decode_profile
    from penstock.index.profile._files import profile_text as profile_text
    from penstock.index.profile._files import read_profile as read_profile
    from penstock.index.profile._profile import Profile as Profile
    from penstock.index.profile._profile import profile_records as profile_records
    from penstock.index.profile._seen_kinds import UNREADABLE as UNREADABLE
    from penstock.index.tokenizers._tokenizer import Encoded as Encoded
    from penstock.index.tokenizers._tokenizer import NamedTokenizer as NamedTokenizer
    from penstock.index.tokenizers._tokenizer import Tokenizer as Tokenizer
    from penstock.index.tokenizers._tokenizer import load_tokenizer as load_tokenizer
    from penstock.index.tokenizers._tokenizer import tokenizer_of as tokenizer_of
    from penstock.index.tokens._generator import (
        TokenizedSampleGenerator as TokenizedSampleGenerator,
    )
    from penstock.index.tokens._job import TokenReport as TokenReport
    from penstock.index.tokens._journal import take_back_dead as take_back_dead
    from penstock.index.tokens._text import TextField as TextField
    from penstock.index.tokens._text import get_text_from_jsonl as get_text_from_jsonl
    from penstock.index.tokens._tokenize import TokenIndexer as TokenIndexer
    from penstock.index.tokens._tokenize import (
        create_tokenize_and_index_jsonl_text_func as create_tokenize_and_index_jsonl_text_func,
    )
    from penstock.index.tokens._view import TokenView as TokenView

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "BadLine": "_bad_lines",
        "FileTextLinesIndexer": "_indexer",
        "IndexStore": "_index_store",
        "IndexStoreInterface": "_index_store",
        "SampleData": "_indexer",
        "SampleGeneratorInterface": "_indexer",
        "SampleIndex": "_sample_index",
        "SampleLocation": "_sample_index",
        "TokenReport": "tokens._job",
        "TokenizedSampleGenerator": "tokens._generator",
        "create_default_jsonl_indexer": "_indexer",
        "create_tokenize_and_index_jsonl_text_func": "tokens._tokenize",
        "get_text_from_jsonl": "tokens._text",
        "read_bad_lines": "_bad_lines",
        "read_profile": "profile._files",
    },
    for_rooms={
        "Aside": "checked._checks",
        "BuildOptions": "_build",
        "CSV": "_listing",
        "DOCUMENT_FILES": "_names",
        "Changes": "_stale",
        "Checks": "checked._checks",
        "CsvScanner": "csv._scan",
        "Dialect": "csv._types",
        "Documents": "_sample_index",
        "Encoded": "tokenizers._tokenizer",
        "FileMeta": "_meta",
        "FileScan": "_scan",
        "Footer": "_parquet_scan",
        "Found": "_listing",
        "Hashed": "_stale",
        "JSONL": "_listing",
        "JSON_NAMES": "checked._line_check",
        "LARGEST_FRAME": "_blocks",
        "LinePieces": "_line_pieces",
        "LineScanner": "_scan",
        "Listing": "_listing",
        "Look": "checked._checks",
        "Meta": "_meta",
        "Mode": "_build",
        "NamedTokenizer": "tokenizers._tokenizer",
        "PARQUET": "_listing",
        "Part": "checked._units",
        "Piece": "_line_pieces",
        "Place": "_place",
        "Profile": "profile._profile",
        "Scanner": "_scan",
        "TOKEN_FOLDER": "_names",
        "TextField": "tokens._text",
        "TokenIndexer": "tokens._tokenize",
        "TokenView": "tokens._view",
        "Tokenizer": "tokenizers._tokenizer",
        "TokensMeta": "_meta",
        "UNREADABLE": "profile._seen_kinds",
        "UnifiedSchema": "_parquet_scan",
        "changes": "_stale",
        "convert_options": "csv._types",
        "decode_meta": "_meta",
        "decode_profile": "profile._files",
        "digest": "_fingerprint",
        "exists": "_open_index",
        "file_fingerprint": "_fingerprint",
        "hashed_files": "_stale",
        "kind_in": "_load",
        "leftover_problem": "_folder",
        "list_files": "_listing",
        "load_beside": "_open_index",
        "load_place": "_open_index",
        "load_tokenizer": "tokenizers._tokenizer",
        "local_folder": "_open_index",
        "make_index": "_open_index",
        "open_or_build": "_open_index",
        "place_of": "_place",
        "profile_records": "profile._profile",
        "profile_text": "profile._files",
        "put_aside_in": "_aside",
        "ranges_of": "_parquet_groups",
        "read_footer": "_parquet_scan",
        "read_footers": "_parquet_scan",
        "read_group": "_parquet_groups",
        "read_meta": "_load",
        "read_options": "csv._types",
        "rebuilding": "_names",
        "refuse_put_aside": "_aside",
        "remove_leftover": "_folder",
        "rows_before": "_sample_index",
        "scan_rows": "checked._row_check",
        "take_back_dead": "tokens._journal",
        "tokenizer_of": "tokenizers._tokenizer",
        "type_of": "csv._types",
        "whole_rows": "csv._types",
        "wider_type": "csv._types",
        "with_line_end": "csv._types",
    },
)
