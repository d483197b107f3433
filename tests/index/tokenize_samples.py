"""What the tests of tokenising share: texts in files, what becomes of them by hand, what did."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.index import IndexStore, create_tokenize_and_index_jsonl_text_func
from penstock.index.tokens._tokenize import TokenIndexer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from penstock.index import TokenReport

EOS = 256


def letters(text: str) -> list[int]:
    """Return the bytes of a text: a tokenizer that any process can import."""
    return list(text.encode())


def line(text: object) -> str:
    return json.dumps({"text": text}) + "\n"


def write_texts(folder: Path, files: Mapping[str, Sequence[str]]) -> None:
    for name, texts in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(line, texts)))


def indexer(tokenizer: object = letters, *arguments: Any, **options: Any) -> TokenIndexer:
    """Return the indexer with `unit_bytes`, which only we may choose."""
    unit_bytes = options.pop("unit_bytes", 16 << 20)
    options = {"num_workers": 0, "progress": False} | options
    made = create_tokenize_and_index_jsonl_text_func(tokenizer, EOS, *arguments, **options)
    return TokenIndexer(replace(made.job, unit_bytes=unit_bytes))


def tokenise(folder: Path, tokenizer: object = letters, **options: Any) -> TokenReport:
    return indexer(tokenizer, folder, **options)()


class Tokens(NamedTuple):
    """What lies in a token folder."""

    bins: dict[str, bytes]
    names: list[str]
    rows: list[list[int]]
    ends: list[list[int]] | None
    goes_on: list[int] | None


def letters_and_ends(text: str) -> list[int]:
    """Return the bytes of a text; some are the token that also ends documents."""
    return [EOS if letter == ord("e") else letter for letter in text.encode()]


def tokens_in(folder: Path) -> Tokens:
    index = IndexStore(folder).load()
    documents = index.documents
    return Tokens(
        {
            str(path.relative_to(folder / "tokenized-samples")): path.read_bytes()
            for path in sorted((folder / "tokenized-samples").rglob("*.bin"))
        },
        [str(path).removeprefix(f"{folder}/") for path in index.file_locations],
        index.sample_locations.tolist(),
        None
        if documents is None
        else [
            documents.ends[start:stop].tolist()
            for start, stop in pairwise(documents.offsets.tolist())
        ],
        None if documents is None else documents.goes_on.tolist(),
    )


class _Sample(NamedTuple):
    file: str
    tokens: list[int]
    ends: list[int]
    goes_on: bool


def by_hand(
    files: Mapping[str, Sequence[str]],
    size: int | None = None,
    tokenizer: Callable[[str], list[int]] = letters,
    pad: int | None = None,
) -> Tokens:
    """Tokenise one document after the other, as a person would write it."""
    samples = _samples(files, size, tokenizer, pad)
    bins = {f"{file.removesuffix('.jsonl')}-tokenized-samples.bin": b"" for file in files}
    names: list[str] = []
    rows = []
    for sample in samples:
        name = f"{sample.file.removesuffix('.jsonl')}-tokenized-samples.bin"
        if f"tokenized-samples/{name}" not in names:
            names.append(f"tokenized-samples/{name}")
        rows.append([len(names) - 1, len(bins[name]), 2 * len(sample.tokens)])
        bins[name] += np.array(sample.tokens, "<u2").tobytes()
    found = dict(sorted(bins.items())), names, rows
    if size is None:
        return Tokens(*found, None, None)
    ends = [sample.ends for sample in samples]
    return Tokens(*found, ends, [int(sample.goes_on) for sample in samples])


def _samples(
    files: Mapping[str, Sequence[str]],
    size: int | None,
    tokenizer: Callable[[str], list[int]],
    pad: int | None,
) -> list[_Sample]:
    samples: list[_Sample] = []
    empty = _Sample("", [], [], goes_on=False)
    held = empty
    for file, texts in files.items():
        for text in texts:
            ids = tokenizer(text)
            if size is None:
                samples.append(_Sample(file, ids, [], goes_on=False))
                continue
            for left, token in zip(range(len(ids), -1, -1), [*ids, EOS], strict=True):
                held = _Sample(file, [*held.tokens, token], held.ends, left > 0)
                is_full = len(held.tokens) == size
                if is_full or not left:
                    held = held._replace(ends=[*held.ends, len(held.tokens)])
                if is_full:
                    samples.append(held)
                    held = empty
    if pad is not None and size is not None and held.tokens:
        filling = [pad] * (size - len(held.tokens))
        samples.append(held._replace(tokens=held.tokens + filling))
    return samples


def left_of(folder: Path) -> list[str]:
    """Return what is hidden in a folder."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
