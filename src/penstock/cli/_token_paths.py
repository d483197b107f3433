"""Paths that hold tokens, but are not the ones that open them: what they are, and what to give."""

from __future__ import annotations

import posixpath
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._units import counted
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError
from penstock.index import CSV, JSONL, PARQUET, kind_in, rebuilding
from penstock.storage import hidden_folders_in, is_pattern, is_remote, join, locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import PenstockError
    from penstock.storage import StorageOptions

_SAMPLES, _INDEX, _KIND = "tokenized-samples", "index", "tokens"
_BIN, _IDX = ".bin", ".idx"
_MDS_INDEX = "index.json"
_RECORDS = (*JSONL, *CSV, *PARQUET)
_HEAD_BYTES = 64


def refuse_tokens_by_name(path: str, options: StorageOptions) -> None:
    """Raise where a file holds no lines: one of tokens, or one of the two of Megatron-LM."""
    if is_pattern(path) or not path.endswith((_BIN, _IDX)):
        return
    above = _above(path)
    if _name(above) == _SAMPLES:
        raise _part_of_tokens(path, _above(above), options)
    prefix = path.removesuffix(_BIN).removesuffix(_IDX)
    if _is_text(path, options):
        return
    other = f"{prefix}{_IDX if path.endswith(_BIN) else _BIN}"
    if _exists(other, options):
        raise OptionError(f"{path} is half of a dataset of Megatron-LM: tokens, not lines.")
    raise ObjectNotFoundError(
        f"{path} holds no lines. A {_BIN} and an {_IDX} of one name are tokens of Megatron-LM, and "
        f"there is no {other}: put it beside. Token files of penstock tokenize open with the "
        f"folder above {_SAMPLES}/.",
        path=other,
    )


def refuse_folder_of_tokens(path: str, options: StorageOptions) -> None:
    """Raise where a folder without records holds tokens, or parts of such a folder."""
    from penstock.datasets import is_shard  # noqa: PLC0415 (numpy)

    if problem := missing_index(path, options):
        raise ObjectNotFoundError(f"{path}: {problem}", path=join(path, _INDEX))
    files = _files(path, options)
    is_samples = _name(path) == _SAMPLES
    if is_samples and any(name.endswith(_BIN) for name in files):
        raise _part_of_tokens(path, _above(path), options)
    if _token_files(path, options):
        raise OptionError(f"{path} holds tokens, not lines. Copy the folder as it is.")
    pairs = [
        name
        for name in files
        if name.endswith(_IDX) and f"{name.removesuffix(_IDX)}{_BIN}" in files
    ]
    if pairs:
        count = counted(len(pairs), "dataset")
        raise OptionError(
            f"{path} holds {count} of Megatron-LM ({_BIN} and {_IDX}). Give one of them: "
            f"{join(path, pairs[0])}"
        )
    alone = next((name for name in files if name.endswith((_BIN, _IDX))), None)
    if alone is not None:
        refuse_tokens_by_name(join(path, alone), options)
    if _MDS_INDEX in files and any(map(is_shard, files)):
        raise OptionError(f"{path} holds samples of MDS, not lines. Copy the folder as it is.")


def missing_index(path: str, options: StorageOptions) -> str:
    """Return what is wrong with a folder of token files, or of shards, that no index opens."""
    if is_pattern(path):
        return ""
    if _token_files(path, options):
        return _problem(path, options)
    from penstock.datasets import is_mds, is_shard  # noqa: PLC0415 (numpy)

    files = _files(path, options)
    if any(name.lower().endswith(_RECORDS) for name in files) or not any(map(is_shard, files)):
        return ""
    if is_mds(path, options):
        return ""
    is_there = f"the {_MDS_INDEX} that names them is damaged"
    what = is_there if _MDS_INDEX in files else f"no {_MDS_INDEX} that names them"
    return f"shards of MDS lie here, and {what}. Copy the folder again"


def unnamed_files(path: str, files: Sequence[str], options: StorageOptions) -> list[str]:
    """Return the token files of a folder that are not among those that its index names."""
    named = set(files)
    store, name = locate(join(path, _SAMPLES), options)
    with suppress(ObjectNotFoundError):
        # An empty one is of a text file in which no sample ends.
        found = [entry for entry in store.list(name) if entry.size and entry.name.endswith(_BIN)]
        return [path for entry in found if (path := store.path(entry.name)) not in named]
    return []


def _token_files(path: str, options: StorageOptions) -> list[str]:
    return [name for name in _files(join(path, _SAMPLES), options) if name.endswith(_BIN)]


def _problem(path: str, options: StorageOptions) -> str:
    """Return why the index of a folder does not open its token files; nothing where it does."""
    remedy = f"Tokenise again: {rebuilding(path, tokens=True)}"
    if _was_killed(path):
        remedy = (
            "A run was killed here: the same command goes on with it, and penstock clean "
            f"{path} brings back what was there before"
        )
    if is_remote(path):
        is_there = is_ours = _exists(join(path, f"{_INDEX}/meta.json"), options)
    else:
        folder = join(locate(path, options)[1], _INDEX)
        is_there = Path(folder).is_dir()
        try:
            is_ours = is_there and kind_in(folder) == _KIND
        except (CorruptIndexError, ObjectNotFoundError) as failure:
            return f"{failure}. {remedy}" if _was_killed(path) else str(failure)
    if is_ours:
        return ""
    what = f"{_INDEX}/ is not about them" if is_there else f"there is no {_INDEX}/"
    return f"{_SAMPLES}/ holds token files, but {what}: nothing opens them. {remedy}"


def _was_killed(path: str) -> bool:
    return not is_remote(path) and bool(hidden_folders_in(locate(path)[1]))


def _part_of_tokens(path: str, base: str, options: StorageOptions) -> PenstockError:
    problem = _problem(base, options)
    if problem:
        return ObjectNotFoundError(f"{path} is a part of {base}: {problem}", path=base)
    what = "is a token file" if path.endswith(_BIN) else "holds the token files"
    return OptionError(f"{path} {what} of {base}, which its index opens. Give that: {base}")


def _is_text(path: str, options: StorageOptions) -> bool:
    """Whether a file begins like JSON: no token file does without a zero byte somewhere early."""
    store, name = locate(path, options)
    with closing(store.open(name)) as file:
        head = file.read_at(0, min(_HEAD_BYTES, file.size)) if file.size else b""
    return b"\0" not in head and head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def _exists(path: str, options: StorageOptions) -> bool:
    store, name = locate(path, options)
    with suppress(ObjectNotFoundError, NotADirectoryError):
        return bool(store.entry(name))
    return False


def _above(path: str) -> str:
    """Return the folder of a path, as it was typed."""
    if is_remote(path):
        return path.rstrip("/").rpartition("/")[0]
    plain = Path(path)
    return str((plain if plain.name else plain.resolve()).parent)


def _name(path: str) -> str:
    return posixpath.basename(path.rstrip("/") if is_remote(path) else str(Path(path).resolve()))


def _files(path: str, options: StorageOptions) -> list[str]:
    """Return the names of the files in a folder, without those below."""
    store, name = locate(path, options)
    with suppress(ObjectNotFoundError):
        return sorted(posixpath.basename(entry.name) for entry in store.list(name))
    return []
