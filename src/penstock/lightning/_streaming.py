"""`StreamingDataModule`: observations of files below a folder or a bucket."""

from __future__ import annotations

import logging
import operator
import os
import re
import warnings
from functools import reduce
from typing import TYPE_CHECKING, Any

import penstock
from penstock._lazy import require
from penstock._words import counted, few, warn_once
from penstock.datasets import ListSource
from penstock.errors import (
    ChangedSourceError,
    CorruptFileError,
    MalformedLineError,
    OptionError,
    SchemaMismatchError,
    StoragePermissionError,
    UnsupportedFileError,
)
from penstock.index import list_files
from penstock.lightning._options import (
    STREAMING,
    ShardingStrategy,
    Suffix,
    given_splits,
    one_of,
)
from penstock.lightning._schema_module import SchemaModule
from penstock.lightning._shares import files_of
from penstock.schema import Strata
from penstock.storage import StorageOptions, is_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.datasets import Source
    from penstock.lightning._options import EngineOptions, SplitOptions
    from penstock.lightning._schema_module import SplitRecords
    from penstock.lightning._trainer_ranks import TrainerRanks

_log = logging.getLogger("penstock.lightning")

_FORMATS = {Suffix.ndjson: "jsonl", Suffix.feather: "arrow", Suffix.json: None}
"""The formats of `penstock.open`, where they have other names; those of `.json` show in files."""
_NULLS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""The texts that Arrow takes for null by default, besides the empty one."""
_SCHEMES = ("", "file", "s3")
_UNREADABLE = (
    CorruptFileError,
    MalformedLineError,
    OptionError,
    SchemaMismatchError,
    StoragePermissionError,
    UnsupportedFileError,
)
"""Errors of a file itself, and not of a network that may work again."""
_GLOB_STAR = re.compile(r"(?:^|[\w/-])\*")
"""A star behind a letter, which a regular expression of paths hardly has."""
_OF_EXPRESSIONS = re.compile(r"[\\^$+|()]|\.\*")


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
        persistent_workers: Keep the workers of a split from epoch to epoch; False starts them anew.
        pin_memory: Copy tensors to page-locked memory, where there is a GPU.
        observation_buffer_size: Observations that a shuffle draws from; 1 keeps their order.
        sample_rate: The share of observations that each epoch uses.
        chunk_batch_size: Records of a chunk; by default 4,096.
        sharding: What is assigned whole to a worker: "file", "chunk" or "record".
        file_buffer_size: Files that a shuffle of their order draws from; 1 keeps it.
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
        given = locals()
        super().__init__(given, STREAMING)
        if not isinstance(root, str | os.PathLike):
            raise TypeError(f"root={root!r}: expected a path.")
        self._root = os.fspath(root).rstrip("/") or "/"
        self._suffix = one_of(Suffix, "suffix", suffix)
        scheme = self._root.partition("://")[0] if "://" in self._root else ""
        if scheme not in _SCHEMES:
            raise OptionError(f"root={self._root!r}: expected a folder, or s3://bucket/prefix.")
        if is_pattern(self._root):
            raise OptionError(
                f"root={self._root!r} is a pattern: give the folder, and a regular expression of "
                "paths for each split."
            )
        if self._suffix is Suffix.avro:
            require("fastavro", extra="avro", purpose="suffix='avro'")
        self._given = {split: _compiled(split, one) for split, one in given_splits(given).items()}
        if not self._given:
            warnings.warn("a StreamingDataModule without a split has no data.", stacklevel=2)

    def _stream(
        self,
        strata: Strata,
        options: SplitOptions,
        ranks: TrainerRanks,
        position: Mapping[str, Any],
    ) -> SplitRecords | None:
        pattern = self._given.get(strata)
        if pattern is None:
            return None
        files = self.of_first_rank(lambda: self._matching(strata, pattern))
        if position:
            files = self._as_before(files, position["files"])
        source = self._opened(list(files.values()))
        if files and not len(source) and not self.engine.allow_empty:
            raise RuntimeError(
                f"no record is in {counted(len(files), 'file')} of {strata}={pattern.pattern!r}, "
                f"the first is {next(iter(files))}. Give files with records, or "
                "EngineOptions(allow_empty=True)."
            )
        spelled = {path: name for name, path in files.items()}
        parts = sorted(part._replace(name=spelled[part.name]) for part in files_of(source))
        needs_more = options.sharding is ShardingStrategy.file and not options.replacement
        if needs_more and 0 < len(parts) < ranks.world_size:
            warnings.warn(
                f"{counted(len(parts), 'file')} of {strata}= for {ranks.world_size} ranks: some "
                "ranks have no record of their own. Give sharding='chunk'.",
                stacklevel=2,
            )
        below = [name.removeprefix(self._root) for name in files]
        return self._shared(source, parts, options, ranks, position, files=below)

    def _matching(self, strata: Strata, pattern: re.Pattern[str]) -> dict[str, str]:
        """Return the files of a split, as the root is spelled, and where they are."""
        listed = self._listed()
        files = {name: path for name, path in listed.items() if pattern.search(name)}
        if strata is Strata.train:
            self._warn_of_shared(files)
        if files or self.engine.allow_empty:
            return files
        text = f"no file below {self._root} matches {strata}={pattern.pattern!r}; there "
        text += (
            f"are {counted(len(listed), 'file')}, as {few([*listed], 3)}." if listed else "is none."
        )
        glob = _from_glob(pattern.pattern)
        if any(map(re.compile(glob).search, listed)):
            text += f' It reads as a glob, and a regular expression is needed: r"{glob}".'
        raise OptionError(text)

    def _warn_of_shared(self, files: Iterable[str]) -> None:
        for split in (Strata.validate, Strata.test):
            pattern = self._given.get(split)
            both = [] if pattern is None else [name for name in files if pattern.search(name)]
            if both:
                warn_once(
                    _log,
                    f"{counted(len(both), 'file', ('is', 'are'))} in both train= and {split}=, the "
                    f"first is {both[0]}. A pattern is searched in the whole path, root included.",
                )

    def _as_before(self, files: Mapping[str, str], before: list[str]) -> dict[str, str]:
        """Return the files that a run began with."""
        wanted = [f"{self._root}{name}" for name in before]
        gone = [name for name in wanted if name not in files]
        if gone:
            raise ChangedSourceError(
                f"{counted(len(gone), 'file')} of {len(wanted):,} that the run began with cannot "
                f"be found, the first is {gone[0]}. Bring the files back, and give the pattern "
                "that the run began with."
            )
        if len(files) > len(wanted):
            more = counted(len(files) - len(wanted), "file", ("was", "were"))
            warnings.warn(
                f"{more} added since the run began; it goes on over the {len(wanted):,} that it "
                "began with. Start a new run to use them.",
                stacklevel=2,
            )
        return {name: files[name] for name in wanted}

    def _listed(self) -> dict[str, str]:
        """Return the files below the root, as it is spelled, sorted, and where they are."""
        listing = list_files(self._root, options=StorageOptions(self.engine.storage_options))
        if listing.folder is None:
            return {self._root: listing.files[0].path}
        spelled, paths = self._root.rstrip("/"), sorted(one.path for one in listing.files)
        return {f"{spelled}/{path[len(listing.folder) :].lstrip('/')}": path for path in paths}

    @property
    def _names_chunks(self) -> bool:
        return self._suffix is not Suffix.ndjson

    @property
    def _skips_bad(self) -> bool:
        if self.engine.on_error is None:
            return self._suffix is not Suffix.ndjson
        return super()._skips_bad

    def _opened(self, files: list[str]) -> Source:
        if not files:
            return ListSource([])
        try:
            return self._open(files)
        except _UNREADABLE:
            if not self._skips_bad and self._suffix is not Suffix.json:
                raise
        # Some cannot be read, or some `.json` files are arrays and others lines.
        groups: dict[str, list[str]] = {}
        for path in files:
            try:
                meta = self._open([path]).index_meta
            except _UNREADABLE as why:
                if not self._skips_bad:
                    raise
                last = why
                warnings.warn(f"{path} is left out: {why}", stacklevel=2)
            else:
                groups.setdefault("" if meta is None else meta.kind, []).append(path)
        if not groups:
            raise RuntimeError(
                f"no file of {len(files):,} below {self._root} can be read. The last: {last}"
            ) from last
        return reduce(operator.add, map(self._open, groups.values()))

    def _open(self, files: list[str]) -> Source:
        given = self.engine.format_options or {}
        # As in json2vec, the first row has names, no field of a text column is null, and words for
        # nothing are no misfits in columns of numbers.
        is_csv = self._suffix is Suffix.csv
        usual: dict[str, Any] = {"header": True, "empty_text": True} if is_csv else {}
        if is_csv and "null_values" not in given:
            usual["number_nulls"] = list(_NULLS)
        source: Source = penstock.open(
            files,
            format=_FORMATS.get(self._suffix, str(self._suffix)),
            storage_options=self.engine.storage_options,
            format_options={**usual, **given},
        )
        return source


def _compiled(split: str, pattern: Any) -> re.Pattern[str]:
    if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
        return pattern
    if not isinstance(pattern, str):
        raise TypeError(f"{split}={pattern!r}: expected a regular expression, as text.")
    if pattern[:1] == "*" or "/*" in pattern or _is_glob(pattern):
        raise OptionError(
            f"{split}={pattern!r} is a glob, and a regular expression is needed: "
            f'r"{_from_glob(pattern)}".'
        )
    try:
        return re.compile(pattern)
    except re.error as why:
        raise OptionError(f"{split}={pattern!r} is no regular expression: {why}.") from None


def _is_glob(pattern: str) -> bool:
    r"""Whether a pattern has a star as in a glob, and nothing of a regular expression.

    >>> [_is_glob(one) for one in ("part-*.csv", "part-.*", "0*1", r"0*1\.csv$")]
    [True, False, True, False]
    """
    return bool(_GLOB_STAR.search(pattern)) and not _OF_EXPRESSIONS.search(pattern)


def _from_glob(pattern: str) -> str:
    r"""Return the regular expression that means what a glob does.

    >>> print(_from_glob("{train,test}-*.csv"))
    (?:train|test)-[^/]*\.csv$
    """
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts |= {"{": "(?:", "}": ")", ",": "|"} if "{" in pattern else {}
    found = re.split(r"(\*\*/|\*\*|[*?{},])", pattern)
    return "".join(parts.get(one) or re.sub(r"([.^$+()|])", r"\\\1", one) for one in found) + "$"
