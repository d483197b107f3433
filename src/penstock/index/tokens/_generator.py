"""Samples of tokens for `FileTextLinesIndexer`, made line by line."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import MalformedLineError, ObjectExistsError, OptionError
from penstock.index._indexer import SampleData
from penstock.index._names import TOKEN_FOLDER
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.index.tokens._job import POSTFIX, free_name
from penstock.index.tokens._pack import pack_options, refuse_misfit, token_id, token_type
from penstock.index.tokens._texts import BadText, ProcessTextLineFunc, TextCall
from penstock.storage import Draft, LocalStore, join, local_path

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from penstock.index._meta import TokensMeta
    from penstock.index._sample_schema import SampleSchema

_log = logging.getLogger("penstock.index")


class TokenizedSampleGenerator:
    r"""Makes token samples of lines, for `FileTextLinesIndexer`.

    With `sample_size` every document is followed by `eos_idx`, and the rest that does not fill a
    sample goes into the next one, also across files; without it a document is a sample.
    `create_tokenize_and_index_jsonl_text_func` does the same for many documents at once.

    >>> from penstock.index import get_text_from_jsonl
    >>> generator = TokenizedSampleGenerator(
    ...     get_text_from_jsonl, lambda text: list(text.encode()), eos_idx=0, sample_size=3
    ... )
    >>> import tempfile
    >>> generator.prepare(f"{tempfile.mkdtemp()}/a.jsonl")
    >>> [sample.sample_bytes for sample in generator.create_samples(b'{"text": "abc"}\n')]
    [b'a\x00b\x00c\x00']
    >>> generator.finish(is_last_file=True)
    """

    def __init__(  # noqa: PLR0913, PLR0917 (as data-forager has it)
        self,
        process_text_line_func: ProcessTextLineFunc,
        tokenizer_func: Callable[..., Any] | object,
        eos_idx: int | None,
        token_dtype: DTypeLike = np.uint16,
        sample_size: int | None = None,
        base_output_path: str | os.PathLike[str] | None = None,
        file_name_postfix: str = POSTFIX,
        name: str | None = None,
        *,
        batched: bool | None = None,
    ) -> None:
        self._text = TextCall(process_text_line_func)
        self._tokenizer = tokenizer_of(tokenizer_func, batched=batched)
        self._dtype = token_type(token_dtype)
        self._eos = None if eos_idx is None else token_id("eos_idx", eos_idx, self._dtype)
        self._pack = pack_options(sample_size, "concat", "drop", self._eos, None, self._dtype)
        self._folder, self._postfix = base_output_path, file_name_postfix
        self._draft: Draft | None = None
        self._paths: dict[str, str] = {}
        """Token file of each text file."""
        self._is_over, self._line, self._from, self._path = False, 0, "", ""
        self._begin()

    def _begin(self) -> None:
        self._now: tuple[int, int, NDArray[Any]] = 0, 0, np.empty(0, self._row)
        """Documents, tokens, and the tokens behind the last full sample."""
        self._before = self._now
        """The same before the current file, for `discard`."""
        self._finished: set[str] = set()
        """Text files that are done; one of them again begins another run."""

    def prepare(self, text_file_path: str) -> None:
        """Begin the token file of a text file; an existing one raises `FileExistsError`."""
        self.discard()
        if self._is_over or os.fspath(text_file_path) in self._finished:
            self._is_over = False
            self._begin()
        self._from, self._line = os.fspath(text_file_path), 0
        self._path = self._paths.setdefault(self._from, self._path_for(self._from))
        if os.path.lexists(self._path):
            raise self._taken()
        self._draft = LocalStore().draft(*os.path.split(self._path))

    def _path_for(self, text_file: str) -> str:
        """Return a path that no other token file has, with the folder's name if necessary."""
        path = local_path(text_file)
        folder, base = os.path.split(path)
        if self._folder is None:
            folder, relative = join(folder, TOKEN_FOLDER), base
        else:
            others = [os.path.dirname(local_path(one)) for one in self._paths]
            common = os.path.commonpath([folder, *others])
            folder, relative = local_path(self._folder), os.path.relpath(path, common)
        below = f"{folder}/"
        names = [one.removeprefix(below) for one in self._paths.values() if one.startswith(below)]
        return join(folder, free_name(relative, names, self._postfix))

    def discard(self) -> None:
        """Drop an unfinished token file and its documents."""
        if self._draft is not None:
            self._draft.discard()
            self._draft = None
            self._now = self._before

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        """Return the samples that a line completes; a blank line is no document."""
        if self._draft is None:
            raise OptionError(
                "call prepare() before create_samples(), and finish() after the last."
            )
        self._line += 1
        if not text_line.strip():
            return []
        try:
            return self._samples(self._draft, self._document(text_line))
        except BaseException:
            self.discard()
            raise

    @property
    def _row(self) -> np.dtype[Any]:
        """The type of what is stored for one token."""
        return self._dtype

    def _document(self, text_line: bytes) -> NDArray[Any]:
        """Return the rows of a document, without its end."""
        try:
            text = self._text(text_line)
        except BadText as bad:
            raise MalformedLineError(
                f"{self._from}, line {self._line:,} is no document: {bad}. Repair it, or give "
                "process_text_line_func= a function that takes its text.",
                path=self._from,
                line_number=self._line,
            ) from bad.__cause__
        return self._encoded(text)

    def _end(self) -> NDArray[Any]:
        """Return the row that ends a document."""
        return np.array([self._eos], self._dtype)

    def _stored(self, sample: NDArray[Any]) -> bytes:
        return sample.tobytes()

    def _encoded(self, text: str) -> NDArray[Any]:
        where = f"line {self._line:,} of {self._from}"
        try:
            ids = self._tokenizer.encode([text]).ids
        except Exception as why:
            why.add_note(f"Raised by the tokenizer for the text in {where}.")
            raise
        refuse_misfit(ids, self._dtype, lambda _: where, path=self._from, line_number=self._line)
        return ids.astype(self._dtype)

    def _samples(self, draft: Draft, tokens: NDArray[Any]) -> list[SampleData]:
        documents, count, rest = self._now
        size, samples = self._pack.size, [tokens]
        if size is not None:
            tokens = np.concatenate([rest, tokens, self._end()])
            samples = [tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size)]
            rest = tokens[len(samples) * size :]
        data = [self._stored(sample) for sample in samples]
        draft.write(b"".join(data))
        self._now = documents + 1, count + sum(map(len, samples)), rest
        return [SampleData(sample, self._path) for sample in data]

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001 (the protocol's own words)
        """Publish the token file; the tokens behind the last full sample are dropped."""
        self._is_over = is_last_file
        if self._draft is None:
            return
        try:
            self._draft.publish(self._path, exclusive=True)
        except ObjectExistsError:
            raise self._taken() from None
        else:
            self._before = self._now
            self._finished.add(self._from)
        finally:
            self.discard()

    def get_sample_schema(self) -> SampleSchema | None:
        """Return the arrays of a sample; None, for samples are tokens alone."""
        return None

    def tokens_meta(self) -> TokensMeta:
        """Return the description of the samples for `meta.json`."""
        documents, tokens, rest = self._now
        counts = {"documents": documents, "tokens": tokens, "dropped": len(rest)}
        return self._pack.described(self._dtype, self._eos, **counts, borders=False)

    def _taken(self) -> ObjectExistsError:
        return ObjectExistsError(
            f"the token file {self._path} exists already. Remove it and the index that names it, "
            "or give another folder: base_output_path=",
            path=self._path,
            errno=errno.EEXIST,
        )
