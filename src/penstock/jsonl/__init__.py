"""JSON Lines as a stream: files and sharded directories."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.decode import unify as unify
    from penstock.jsonl._async_writers import JsonlDirWriter as JsonlDirWriter
    from penstock.jsonl._async_writers import JsonlWriter as JsonlWriter
    from penstock.jsonl._decode import MalformedLine as MalformedLine
    from penstock.jsonl._dir import JsonlDir as JsonlDir
    from penstock.jsonl._encode import LineEncoder as LineEncoder
    from penstock.jsonl._file import JsonlFile as JsonlFile
    from penstock.jsonl._names import COMPRESSED as COMPRESSED
    from penstock.jsonl._names import SEQUENTIAL as SEQUENTIAL
    from penstock.jsonl._names import SHARD_EXTENSIONS as SHARD_EXTENSIONS
    from penstock.jsonl._names import compression_of as compression_of
    from penstock.jsonl._names import is_jsonl as is_jsonl
    from penstock.jsonl._names import names_file as names_file
    from penstock.jsonl._names import without_compression as without_compression
    from penstock.jsonl._policy import ErrorHandler as ErrorHandler
    from penstock.jsonl._policy import ErrorPolicy as ErrorPolicy
    from penstock.jsonl._policy import place_in_line as place_in_line
    from penstock.jsonl._policy import reason_text as reason_text
    from penstock.jsonl._records import AsyncStream as AsyncStream
    from penstock.jsonl._records import Stream as Stream
    from penstock.jsonl._sync_writers import JsonlDirWriterSync as JsonlDirWriterSync
    from penstock.jsonl._sync_writers import JsonlWriterSync as JsonlWriterSync
    from penstock.jsonl._text import BOM as BOM
    from penstock.jsonl._text import TextPiece as TextPiece
    from penstock.jsonl._text import decompressed as decompressed
    from penstock.jsonl._text import read_pieces as read_pieces
    from penstock.jsonl._zstd import decode_frame as decode_frame
    from penstock.jsonl._zstd import read_seek_table as read_seek_table

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "AsyncStream": "_records",
        "ErrorHandler": "_policy",
        "JsonlDir": "_dir",
        "JsonlDirWriter": "_async_writers",
        "JsonlDirWriterSync": "_sync_writers",
        "JsonlFile": "_file",
        "JsonlWriter": "_async_writers",
        "JsonlWriterSync": "_sync_writers",
        "Stream": "_records",
        "unify": "_arrow",
    },
    for_rooms={
        "BOM": "_text",
        "ErrorPolicy": "_policy",
        "LineEncoder": "_encode",
        "MalformedLine": "_decode",
        "COMPRESSED": "_names",
        "SEQUENTIAL": "_names",
        "SHARD_EXTENSIONS": "_names",
        "TextPiece": "_text",
        "compression_of": "_names",
        "decode_frame": "_zstd",
        "decompressed": "_text",
        "names_file": "_names",
        "without_compression": "_names",
        "is_jsonl": "_names",
        "place_in_line": "_policy",
        "read_pieces": "_text",
        "read_seek_table": "_zstd",
        "reason_text": "_policy",
    },
)
