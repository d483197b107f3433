"""Finding every record once, so that any of them can be fetched by its number."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.index._array import ArrayScanner
    from penstock.index._build import BuildOptions, Mode
    from penstock.index._detect import look_at, problems_of, records_beside
    from penstock.index._detected import Detected
    from penstock.index._fingerprint import digest, file_fingerprint
    from penstock.index._folder import (
        leftover_problem,
        put_aside_in,
        refuse_put_aside,
        remove_leftover,
    )
    from penstock.index._formats import (
        CSV,
        LINES,
        Format,
        format_by_name,
        format_named,
        load,
    )
    from penstock.index._heads import check_heads
    from penstock.index._indexer import FileTextLinesIndexer as FileTextLinesIndexer
    from penstock.index._indexer import IndexStore as IndexStore
    from penstock.index._indexer import IndexStoreInterface as IndexStoreInterface
    from penstock.index._indexer import NOOPSampleGenerator as NOOPSampleGenerator
    from penstock.index._indexer import SampleData as SampleData
    from penstock.index._indexer import SampleGeneratorInterface as SampleGeneratorInterface
    from penstock.index._indexer import create_default_jsonl_indexer as create_default_jsonl_indexer
    from penstock.index._indexer import noop_sample_processing as noop_sample_processing
    from penstock.index._lakes import refuse_lakes
    from penstock.index._listing import (
        INDEX_FOLDER,
        Found,
        IndexPlace,
        Listing,
        list_files,
        place_of,
    )
    from penstock.index._load import meta_of, read_meta
    from penstock.index._meta import FileMeta, Meta, TokensMeta
    from penstock.index._names import COLUMNS, DOCUMENT_FILES, ROWS, TOKEN_FOLDER, rebuilding
    from penstock.index._open_index import (
        LARGEST_UNASKED,
        exists,
        load_beside,
        load_place,
        make_index,
    )
    from penstock.index._parts import FilePart, LinePiece, opened_lines, parts_of
    from penstock.index._refresh import Refresh, is_own, open_or_build
    from penstock.index._sample_index import Documents, rows_before
    from penstock.index._sample_index import SampleIndex as SampleIndex
    from penstock.index._sample_index import SampleLocation as SampleLocation
    from penstock.index._sample_schema import ArraySpec as ArraySpec
    from penstock.index._sample_schema import SampleSchema as SampleSchema
    from penstock.index._scan import LARGEST_FRAME, LineScanner, Scanner
    from penstock.index._stale import Changes, Hashed, changes, hashed_files
    from penstock.index.checked._build import LineCheck, check_part
    from penstock.index.checked._checks import BadLine as BadLine
    from penstock.index.checked._checks import Checks, Look
    from penstock.index.checked._checks import read_bad_lines as read_bad_lines
    from penstock.index.csv._checked_scan import scan_rows
    from penstock.index.csv._scan import CsvScanner
    from penstock.index.profile._document import decode_profile, profile_text
    from penstock.index.profile._document import read_profile as read_profile
    from penstock.index.profile._profile import Profile
    from penstock.index.profile._values import UNREADABLE
    from penstock.index.tokenizers._files import NamedTokenizer, load_tokenizer
    from penstock.index.tokenizers._tokenizer import TokenizerFunc as TokenizerFunc
    from penstock.index.tokenizers._tokenizer import tokenizer_of
    from penstock.index.tokens._generator import (
        TokenizedSampleGenerator as TokenizedSampleGenerator,
    )
    from penstock.index.tokens._inputs import input_of
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

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_indexer": (
            "FileTextLinesIndexer IndexStore IndexStoreInterface NOOPSampleGenerator SampleData "
            "SampleGeneratorInterface create_default_jsonl_indexer noop_sample_processing"
        ),
        "_sample_index": "SampleIndex SampleLocation",
        "_sample_schema": "ArraySpec SampleSchema",
        "checked._checks": "BadLine read_bad_lines",
        "profile._document": "read_profile",
        "tokenizers._tokenizer": "TokenizerFunc",
        "tokens._generator": "TokenizedSampleGenerator",
        "tokens._job": "TokenReport",
        "tokens._texts": "ProcessTextLineFunc get_text_from_jsonl",
        "tokens._tokenize": "create_tokenize_and_index_jsonl_text_func",
        "tokens._with_aux": (
            "AuxDataGenerator LossMaskGenerator Part ProcessPartsFunc "
            "TokenizedSampleWithAuxGenerator create_tokenize_and_index_with_aux_func"
        ),
    },
    for_rooms={
        "_array": "ArrayScanner",
        "_build": "BuildOptions Mode",
        "_detect": "look_at problems_of records_beside",
        "_detected": "Detected",
        "_fingerprint": "digest file_fingerprint",
        "_folder": "leftover_problem put_aside_in refuse_put_aside remove_leftover",
        "_formats": "CSV Format LINES format_by_name format_named load",
        "_heads": "check_heads",
        "_lakes": "refuse_lakes",
        "_listing": "Found INDEX_FOLDER IndexPlace Listing list_files place_of",
        "_load": "meta_of read_meta",
        "_meta": "FileMeta Meta TokensMeta",
        "_names": "COLUMNS DOCUMENT_FILES ROWS TOKEN_FOLDER rebuilding",
        "_open_index": "LARGEST_UNASKED exists load_beside load_place make_index",
        "_parts": "FilePart LinePiece opened_lines parts_of",
        "_refresh": "Refresh is_own open_or_build",
        "_sample_index": "Documents rows_before",
        "_scan": "LARGEST_FRAME LineScanner Scanner",
        "_stale": "Changes Hashed changes hashed_files",
        "checked._build": "LineCheck check_part",
        "checked._checks": "Checks Look",
        "csv._checked_scan": "scan_rows",
        "csv._scan": "CsvScanner",
        "profile._document": "decode_profile profile_text",
        "profile._profile": "Profile",
        "profile._values": "UNREADABLE",
        "tokenizers._files": "NamedTokenizer load_tokenizer",
        "tokenizers._tokenizer": "tokenizer_of",
        "tokens._inputs": "input_of",
    },
)
