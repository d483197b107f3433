"""JSON Lines as a stream: files and sharded directories."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.jsonl._arrow import unify as unify
    from penstock.jsonl._async_writers import JsonlDirWriter as JsonlDirWriter
    from penstock.jsonl._async_writers import JsonlWriter as JsonlWriter
    from penstock.jsonl._decode import MalformedLine
    from penstock.jsonl._dir import JsonlDir as JsonlDir
    from penstock.jsonl._encode import LineEncoder
    from penstock.jsonl._file import JsonlFile as JsonlFile
    from penstock.jsonl._foreign import (
        HEAD_BYTES,
        conversion_of,
        refuse_foreign,
        refuse_no_text,
    )
    from penstock.jsonl._names import (
        COMPRESSED,
        SEQUENTIAL,
        SHARD_EXTENSIONS,
        compression_of,
        names_file,
        without_compression,
    )
    from penstock.jsonl._policy import ErrorHandler as ErrorHandler
    from penstock.jsonl._policy import ErrorPolicy, place_in_line, reason_text
    from penstock.jsonl._records import AsyncRecordIterator as AsyncRecordIterator
    from penstock.jsonl._records import RecordIterator as RecordIterator
    from penstock.jsonl._sync_writers import JsonlDirWriterSync as JsonlDirWriterSync
    from penstock.jsonl._sync_writers import JsonlWriterSync as JsonlWriterSync
    from penstock.jsonl._text import (
        BOM,
        TextFile,
        TextPiece,
        decompressed,
        read_pieces,
    )
    from penstock.jsonl._zstd import decode_frame, read_seek_table

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_arrow": "unify",
        "_async_writers": "JsonlDirWriter JsonlWriter",
        "_dir": "JsonlDir",
        "_file": "JsonlFile",
        "_policy": "ErrorHandler",
        "_records": "AsyncRecordIterator RecordIterator",
        "_sync_writers": "JsonlDirWriterSync JsonlWriterSync",
    },
    for_rooms={
        "_decode": "MalformedLine",
        "_encode": "LineEncoder",
        "_foreign": "HEAD_BYTES conversion_of refuse_foreign refuse_no_text",
        "_names": (
            "COMPRESSED SEQUENTIAL SHARD_EXTENSIONS compression_of names_file without_compression"
        ),
        "_policy": "ErrorPolicy place_in_line reason_text",
        "_text": "BOM TextFile TextPiece decompressed read_pieces",
        "_zstd": "decode_frame read_seek_table",
    },
)
