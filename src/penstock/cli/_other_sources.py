"""Sources that number their records by themselves: tokens, and MDS folders."""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, TypeGuard

from penstock.cli._formats import kind_by_name
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError
from penstock.index import decode_meta, kind_in
from penstock.storage import is_pattern, is_remote, join, locate

if TYPE_CHECKING:
    from penstock.datasets import Source, TokenSource
    from penstock.index import Meta
    from penstock.storage import StorageOptions

_INDEX, _META, _KIND = "index", "index/meta.json", "tokens"


def other_source(path: str, options: StorageOptions) -> Source | None:
    """Return what PATH holds if that is tokens or an MDS folder, as for `penstock.open`; else None.

    Costs a look at two or three names; nothing is listed.
    """
    if is_pattern(path) or kind_by_name(path) is not None:
        return None
    from penstock import datasets  # noqa: PLC0415 (numpy)

    if _has_tokens(path, options):
        found = datasets.open(path, storage_options=options)
        return found if is_tokens(found) else None
    if _is_pair(path, options):
        return datasets.MegatronTokens(path, storage_options=options)
    if datasets.is_mds(path, options):
        return datasets.MdsRows(path, storage_options=options)
    return None


def _has_tokens(path: str, options: StorageOptions) -> bool:
    """Whether the index in a folder is one of tokens; one that is damaged is told by others."""
    if is_remote(path):
        meta = tokens_meta(path, options)
        return meta is not None and meta.kind == _KIND
    with suppress(CorruptIndexError, ObjectNotFoundError):
        return kind_in(join(locate(path, options)[1], _INDEX)) == _KIND
    return False


def _is_pair(path: str, options: StorageOptions) -> bool:
    """Whether a path is one of the two files of Megatron-LM, or what both names begin with."""
    prefix = path.removesuffix(".bin").removesuffix(".idx")
    if is_remote(path) and prefix == path:
        return False  # A folder, nearly always: one request less.
    store, name = locate(f"{prefix}.idx", options)
    try:
        store.entry(name)
    except ObjectNotFoundError:
        return False
    return True


def is_tokens(source: Source) -> TypeGuard[TokenSource]:
    """Whether records are rows of tokens."""
    from penstock.datasets import TokenSource  # noqa: PLC0415 (numpy)

    return isinstance(source, TokenSource)


def format_of(source: Source) -> str | None:
    """Return how people call what such a source reads; None for records of files."""
    from penstock.datasets import MdsRows, MegatronTokens  # noqa: PLC0415 (numpy)

    if isinstance(source, MdsRows):
        return "MDS"
    if isinstance(source, MegatronTokens):
        return "Megatron-LM"
    return "tokens" if is_tokens(source) else None


def documents_of(source: Source) -> int | None:
    """Return how many documents the sequences of Megatron-LM are; None for other sources."""
    from penstock.datasets import MegatronTokens  # noqa: PLC0415 (numpy)

    if not isinstance(source, MegatronTokens):
        return None
    return source._index.documents  # noqa: SLF001 (no row tells)


def tokens_meta(path: str, options: StorageOptions) -> Meta | None:
    """Return what the index of a token folder says of itself; None where there is none."""
    full = join(path, _META)
    store, name = locate(full, options)
    try:
        file = store.open(name)
    except (ObjectNotFoundError, NotADirectoryError):
        return None
    try:
        return decode_meta(file.read_at(0, file.size), full, path)
    finally:
        file.close()


def eos_of(path: str, options: StorageOptions) -> int | None:
    """Return the token that ends documents in a token folder, where it says so."""
    meta = tokens_meta(path, options)
    return None if meta is None or meta.tokens is None else meta.tokens.eos


def refuse_tokens(path: str, options: StorageOptions, chosen: str | None, why: str) -> None:
    """Say that a verb is not for tokens; an index that was chosen is not one of tokens."""
    source = other_source(path, options) if chosen is None else None
    if source is not None and is_tokens(source):
        shown = shlex.quote(path)
        raise OptionError(
            f"{path} holds tokens, of which this makes nothing: {why}. penstock info {shown} and "
            f"penstock show {shown} --decode TOKENIZER show them; records beside them have a "
            f"pattern: '{path.rstrip('/')}/*.jsonl'"
        )
