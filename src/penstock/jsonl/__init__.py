"""JSON Lines as a stream: files and sharded directories."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.decode import unify as unify
    from penstock.jsonl._dir import JsonlDir as JsonlDir
    from penstock.jsonl._file import JsonlFile as JsonlFile
    from penstock.jsonl._records import AsyncStream as AsyncStream
    from penstock.jsonl._records import Stream as Stream
    from penstock.jsonl._writers import JsonlDirWriter as JsonlDirWriter
    from penstock.jsonl._writers import JsonlDirWriterSync as JsonlDirWriterSync
    from penstock.jsonl._writers import JsonlWriter as JsonlWriter
    from penstock.jsonl._writers import JsonlWriterSync as JsonlWriterSync

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "AsyncStream": "_records",
        "JsonlDir": "_dir",
        "JsonlDirWriter": "_writers",
        "JsonlDirWriterSync": "_writers",
        "JsonlFile": "_file",
        "JsonlWriter": "_writers",
        "JsonlWriterSync": "_writers",
        "Stream": "_records",
        "unify": "_arrow",
    },
)
