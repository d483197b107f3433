"""`StreamingDataModule`: observations of files below a folder or a bucket."""

from __future__ import annotations

import os
import re
import warnings
from typing import TYPE_CHECKING, Any

import penstock
from penstock._words import counted
from penstock.errors import OptionError, PenstockError
from penstock.lightning._options import STREAMING, Suffix, one_of
from penstock.lightning._schema_module import SchemaModule
from penstock.lightning._shares import FileRows, files_of
from penstock.loading import own_numbers
from penstock.schema import Strata
from penstock.storage import StorageOptions, locate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.datasets import Source, Stream
    from penstock.lightning._batches import TrainerRanks
    from penstock.lightning._options import EngineOptions, SplitOptions
    from penstock.storage import Store

_FORMATS = {Suffix.ndjson: "jsonl", Suffix.feather: "arrow", Suffix.json: None}
"""The formats of `penstock.open`, where they have other names; those of `.json` show in files."""
_SCHEMES = ("", "file", "s3")
_LOOKS_LIKE_GLOB = re.compile(r"(?:^|/)\*")


class StreamingDataModule(SchemaModule):
    r"""Observations of the files below a folder or an `s3://` prefix.

    The files of a split are those whose paths a regular expression finds. Each split is opened as
    one source: records are numbered once, and the numbers are kept, so files can be read from
    anywhere.

    Args:
        model: Supplies the schema, the batch size and the vocabularies.
        root: A folder, a file or an `s3://` prefix.
        suffix: The format of all files: ndjson, parquet, feather, avro, csv, orc or json; each
            file may be compressed, as its name says.
        train: A regular expression, searched in the path of each file below `root`.
        validate: The same for validation.
        test: The same for the test.
        predict: The same for prediction.
        preprocessor: A function of a record, its registered name, or a `Preprocessor`.
        num_workers: Worker processes; by default up to 8, as the processors of this rank allow.
        persistent_workers: Kept for json2vec: workers start anew for each epoch.
        pin_memory: Copy tensors to page-locked memory, where there is a GPU.
        observation_buffer_size: Observations that a shuffle draws from; 1 keeps their order.
        sample_rate: The share of observations that each epoch uses.
        chunk_batch_size: Records of a chunk; by default 4,096.
        sharding: What is assigned whole to a worker: "file", "chunk" or "record".
        file_buffer_size: Units that a shuffle of their order draws from; 1 keeps it.
        replacement: Draw chunks with replacement; by default for training alone.
        engine: Everything else.
        kwargs: Options of the preprocessor.

    Options from `num_workers` to `replacement` take one value or a mapping by split.

    >>> import json, pathlib
    >>> from penstock.schema import Number, SchemaModel
    >>> pathlib.Path("events").mkdir()
    >>> lines = "\n".join(json.dumps({"n": n}) for n in range(3))
    >>> _ = pathlib.Path("events/test-0.jsonl").write_text(lines)
    >>> model = SchemaModel(Number("n"), batch_size=2)
    >>> about = {"root": "events", "suffix": "ndjson", "num_workers": 0}
    >>> module = StreamingDataModule(model=model, test=r"test-\d+\.jsonl$", **about)
    >>> [batch.ids.tolist() for batch in module.dataloader("test")]
    [[0, 1], [2]]
    """

    _WHAT = "pattern"

    def __init__(  # noqa: PLR0913 (the options of json2vec)
        self,
        model: object,
        root: str | os.PathLike[str],
        suffix: str | Suffix,
        *,
        train: Any = None,
        validate: Any = None,
        test: Any = None,
        predict: Any = None,
        preprocessor: Any = None,
        num_workers: Any = None,
        persistent_workers: Any = True,
        pin_memory: Any = True,
        observation_buffer_size: Any = 1,
        sample_rate: Any = 1.0,
        chunk_batch_size: Any = None,
        sharding: Any = "file",
        file_buffer_size: Any = 1,
        replacement: Any = None,
        engine: EngineOptions | None = None,
        **kwargs: Any,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in STREAMING}
        super().__init__(
            model,
            preprocessor=preprocessor,
            engine=engine,
            rules=STREAMING,
            given=given,
            kwargs=kwargs,
            named=("root", "suffix"),
        )
        self._root, self._suffix = os.fspath(root), one_of(Suffix, "suffix", suffix)
        scheme = self._root.partition("://")[0] if "://" in self._root else ""
        if scheme not in _SCHEMES:
            raise OptionError(f"root={self._root!r}: expected a folder, or s3://bucket/prefix.")
        if self._suffix is Suffix.avro:
            import fastavro  # noqa: F401, PLC0415 (raises here, and not in a worker)
        patterns = {"train": train, "validate": validate, "test": test, "predict": predict}
        self._patterns = {
            Strata(split): _compiled(split, one)
            for split, one in patterns.items()
            if one is not None
        }
        if not self._patterns:
            warnings.warn("a StreamingDataModule without a split has no data.", stacklevel=2)

    def _stream(
        self,
        strata: Strata,
        options: SplitOptions,
        ranks: TrainerRanks,
        position: Mapping[str, Any],
    ) -> tuple[Stream, Mapping[str, Any]] | None:
        pattern = self._patterns.get(strata)
        if pattern is None:
            return None
        files = [path for path in self._listed() if pattern.search(path)]
        if not files and not self.engine.allow_empty:
            raise OptionError(
                f"no file below {self._root} matches {strata}={pattern.pattern!r}; there are "
                f"{self._seen()}."
            )
        source = self._opened(files)
        parts = files_of(source)
        if strata is Strata.predict:
            self._predicted = FileRows(parts)
        return self._shared(source, parts, options, ranks, position)

    def _seen(self) -> str:
        paths = self._listed()
        few = ", ".join(paths[:3])
        return f"{counted(len(paths), 'file')}, as {few}" if paths else "none"

    def _listed(self) -> list[str]:
        """Return all files below the root, as it is spelled, sorted."""
        store, name = locate(self._root, self._storage_options())
        spelled = self._root.rstrip("/")
        try:
            found = [entry.name for entry in store.list(name, recursive=True)]
        except NotADirectoryError:
            found = []
        if not found:
            return [self._root] if _is_file(store, name) else []
        return sorted(f"{spelled}/{one[len(name) :].lstrip('/')}" for one in found)

    def _storage_options(self) -> StorageOptions:
        return StorageOptions(**(self.engine.storage_options or {}))

    def _opened(self, files: list[str]) -> Source:
        if not files:
            return penstock.open([])
        try:
            return self._open(files)
        except PenstockError:
            if self.engine.on_error == "raise" or len(files) == 1:
                raise
        # One of them cannot be read: the others can.
        good = []
        for path in files:
            try:
                self._open([path])
            except PenstockError as why:
                warnings.warn(f"{path} is left out: {why}", stacklevel=2)
            else:
                good.append(path)
        if not good:
            raise RuntimeError(
                f"none of {counted(len(files), 'file')} below {self._root} can be read."
            )
        return self._open(good)

    def _open(self, files: list[str]) -> Source:
        source: Source = penstock.open(
            files,
            format=_FORMATS.get(self._suffix, str(self._suffix)),
            storage_options=self.engine.storage_options,
            format_options=self.engine.format_options,
        )
        return source

    def rows_of(self, ids: Any) -> tuple[list[str], list[int]]:
        """Return the files of predicted records, and their rows there."""
        return self._predicted.of(own_numbers(ids))


def _is_file(store: Store, name: str) -> bool:
    try:
        return bool(store.entry(name))
    except FileNotFoundError:
        return False


def _compiled(split: str, pattern: Any) -> re.Pattern[str]:
    if isinstance(pattern, re.Pattern):
        return pattern
    if not isinstance(pattern, str):
        raise TypeError(f"{split}={pattern!r}: expected a regular expression.")
    if _LOOKS_LIKE_GLOB.search(pattern):
        raise OptionError(
            f"{split}={pattern!r} is a glob, and a regular expression is needed: "
            f"{_from_glob(pattern)!r}."
        )
    try:
        return re.compile(pattern)
    except re.error as why:
        raise OptionError(f"{split}={pattern!r} is no regular expression: {why}.") from None


def _from_glob(pattern: str) -> str:
    """Return the regular expression that means what a glob does.

    >>> print(_from_glob("train/*.jsonl") == "train/[^/]*" + chr(92) + ".jsonl$")
    True
    """
    parts = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    found = re.split(r"(\*\*/|\*|\?)", pattern)
    return "".join(parts.get(one) or re.escape(one) for one in found) + "$"
