"""What `penstock info` tells of tokens, and of samples in MDS folders."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.cli._paths import as_typed
from penstock.cli._terminal import echo, echo_json, table
from penstock.cli._units import age_text, bytes_text, counted
from penstock.cli.info._known_facts import facts_of_index, leftover_document, leftover_text
from penstock.datasets import is_tokens, open_found
from penstock.storage import locate

if TYPE_CHECKING:
    from penstock.datasets import Source, TokenSource
    from penstock.index import Detected
    from penstock.storage import StorageOptions

_FEW_FILES = 20
_STEP = 1 << 20


class _File(NamedTuple):
    """What is known of one file."""

    path: str
    samples: int
    bytes: int
    modified: float


def tell_of_source(path: str, found: Detected, *, as_json: bool) -> None:
    """Print what a source holds that numbers its records by itself."""
    source, options = open_found(found), found.options
    files = _files(path, source, options)
    meta = source.index_meta
    tokens = _tokens(source) if is_tokens(source) else None
    leftovers = facts_of_index(path, None, options).leftovers
    if as_json:
        told = _document(path, source, files, tokens) | {"format": found.format.name}
        echo_json(told | {"leftovers": [leftover_document(one) for one in leftovers]})
        return
    told = {
        "format": found.format.title,
        "files": f"{len(files):,}",
        **(_token_facts(source, tokens) if is_tokens(source) else _record_facts(source)),
        "stored": bytes_text(sum(file.bytes for file in files)),
    }
    if meta is not None:
        told["made"] = f"{age_text(time.time() - meta.created)} ago"
    lines = [path, *(f"  {name:12} {value}" for name, value in told.items())]
    lines += [f"  {'leftover':12} {leftover_text(one)}" for one in leftovers]
    if not is_tokens(source) and len(source.schema):
        columns = [[field.name, str(field.type)] for field in source.schema]
        lines += ["", table(["column", "type"], columns)]
    if 1 < len(files) <= _FEW_FILES:
        rows = [[file.path, f"{file.samples:,}", bytes_text(file.bytes)] for file in files]
        lines += ["", table(["file", "samples", "stored"], rows)]
    echo("\n".join(lines))


def _files(path: str, source: Source, options: StorageOptions) -> list[_File]:
    blocks, names = source.blocks, source.files
    counts = np.zeros(len(names), np.int64)
    if len(blocks) > 1:
        of_block = np.asarray(source.location(blocks[:-1]).file, np.int64)
        np.add.at(counts, of_block, np.diff(blocks))
    files = []
    for file, count in zip(names, counts.tolist(), strict=True):
        store, name = locate(file, options)
        entry = store.entry(name)
        files.append(_File(as_typed(path, file), count, entry.size, entry.modified))
    return files


def _tokens(source: TokenSource) -> int:
    """Return how many tokens there are, without those that fill up."""
    starts = range(0, len(source), _STEP)
    ids = (np.arange(start, min(start + _STEP, len(source))) for start in starts)
    return sum(int(source.lengths(some).sum()) for some in ids)


def _record_facts(source: Source) -> dict[str, str]:
    return {"samples": f"{len(source):,}"}


def _token_facts(source: TokenSource, tokens: int | None) -> dict[str, str]:
    meta = source.index_meta
    size = source.sample_size
    each = "a document each" if size is None else f"of {counted(size, 'token')}"
    documents = source.documents
    if documents not in (None, len(source)):
        each = "a sequence each" if size is None else f"sequences {each}"
    facts = {
        "samples": f"{len(source):,}, {each}",
        "tokens": f"{tokens:,} ({source.token_dtype.name})",
    }
    if documents is not None:
        facts["documents"] = f"{documents:,}"
    told = None if meta is None else meta.tokens
    if told is None:
        return facts
    facts["documents"] = f"{told.documents:,}"
    if told.packing is not None:
        facts["packing"] = f"{told.packing}, EOS {told.eos}"
    if told.padding:
        share = told.padding / (told.padding + told.tokens)
        facts["padding"] = f"{counted(told.padding, 'token')} ({share:.2%})"
    if told.dropped:
        facts["dropped"] = f"{counted(told.dropped, 'token')} behind the last full sample"
    if meta is not None and meta.bad_lines:
        facts["bad lines"] = f"{meta.bad_lines:,} left out"
    return facts


def _document(
    path: str, source: Source, files: list[_File], tokens: int | None
) -> dict[str, object]:
    meta = source.index_meta
    told = None if meta is None else meta.tokens
    found: dict[str, object] = {
        "path": path,
        "format": None,
        "files": len(files),
        "records": len(source),
        "bytes": sum(file.bytes for file in files),
        "fingerprint": source.fingerprint,
        "per_file": [
            {
                "path": file.path,
                "records": file.samples,
                "bytes": file.bytes,
                "modified": file.modified,
            }
            for file in files
        ],
        "errors": [],
    }
    if not is_tokens(source):
        columns = [{"name": field.name, "type": str(field.type)} for field in source.schema]
        return found | {"columns": columns}
    return found | {
        "tokens": tokens,
        "dtype": source.token_dtype.name,
        "sample_size": source.sample_size,
        "documents": source.documents if told is None else told.documents,
        "packing": source.packing,
        "eos": None if told is None else told.eos,
        "padding": None if told is None else told.padding,
        "dropped": None if told is None else told.dropped,
        "bad_lines": None if meta is None else meta.bad_lines,
        "created": None if meta is None else meta.created,
    }
