"""Token samples line by line, for an indexer that is put together by hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import OptionError
from penstock.index._indexer import SampleData
from penstock.index._listing import TOKEN_FOLDER
from penstock.index._meta import TokensMeta
from penstock.index._token_files import POSTFIX, stem_of
from penstock.index._token_options import holding, pack_options, token_id, token_type
from penstock.index._token_publish import taken
from penstock.index._tokenizer import tokenizer_of
from penstock.storage import LocalStore, join

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

    from penstock.storage import Draft


class TokenizedSampleGenerator:
    r"""Makes token samples of lines, for `FileTextLinesIndexer`.

    With `sample_size` every document is followed by `eos_idx`, and what does not fill a sample is
    carried on into the next one, also over the borders of files; without it a document is a
    sample. `create_tokenize_and_index_jsonl_text_func` does the same for many documents at once.

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
        process_text_line_func: Callable[[bytes], str],
        tokenizer_func: Callable[..., Any] | object,
        eos_idx: int | None,
        token_dtype: DTypeLike = np.uint16,
        sample_size: int | None = None,
        base_output_path: str | os.PathLike[str] | None = None,
        file_name_postfix: str = POSTFIX,
        name: str | None = None,
    ) -> None:
        self._text, self._tokenizer = process_text_line_func, tokenizer_of(tokenizer_func)
        self._dtype = token_type(token_dtype)
        self._eos = None if eos_idx is None else token_id("eos_idx", eos_idx, self._dtype)
        self._pack = pack_options(sample_size, "concat", "drop", self._eos, None, self._dtype)
        self._folder, self._postfix = base_output_path, file_name_postfix
        self._draft: Draft | None = None
        self._from, self._path = "", ""
        self._line = self._documents = self._tokens = 0
        self._rest: NDArray[np.integer[Any]] = np.empty(0, self._dtype)

    def prepare(self, text_file_path: str) -> None:
        """Begin the token file of a text file; one that is there is a `FileExistsError`."""
        folder, base = os.path.split(os.fspath(text_file_path))
        folder = join(folder, TOKEN_FOLDER) if self._folder is None else os.fspath(self._folder)
        self._from, self._line = text_file_path, 0
        self._path = join(folder, f"{stem_of(base)}-{self._postfix}.bin")
        if os.path.lexists(self._path):
            raise taken(self._path)
        self._draft = LocalStore().draft(os.path.abspath(folder), os.path.basename(self._path))

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        """Return the samples that a line completes; a blank one is no document."""
        self._line += 1
        if self._draft is None:
            raise OptionError(
                "call prepare() before create_samples(), and finish() after the last."
            )
        if not text_line.strip():
            return []
        ids = self._tokenizer.encode([self._text(text_line)]).ids
        self._check(ids)
        tokens = ids.astype(self._dtype)
        self._documents += 1
        size = self._pack.size
        samples = [tokens]
        if size is not None:
            tokens = np.concatenate([self._rest, tokens, np.array([self._eos], self._dtype)])
            samples = [tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size)]
            self._rest = tokens[len(samples) * size :]
        data = [sample.tobytes() for sample in samples]
        self._draft.write(b"".join(data))
        self._tokens += sum(map(len, samples))
        return [SampleData(sample, self._path) for sample in data]

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001 (the protocol's own words)
        """Publish the token file; behind the last one, what does not fill a sample is dropped."""
        if self._draft is not None:
            self._draft.publish(os.path.abspath(self._path), exclusive=True)
            self._draft = None

    def get_sample_schema(self) -> None:
        """Return None: samples are tokens and nothing else."""

    def tokens_meta(self) -> TokensMeta:
        """Return what `meta.json` tells of the samples."""
        size = self._pack.size
        return TokensMeta(
            dtype=self._dtype.name,
            sample_size=size,
            eos=None if size is None else self._eos,
            packing=None if size is None else self._pack.packing,
            documents=self._documents,
            tokens=self._tokens,
            dropped=len(self._rest),
        )

    def _check(self, ids: NDArray[Any]) -> None:
        most = int(np.iinfo(self._dtype).max)
        wrong = ids[(ids < 0) | (ids > most)]
        if len(wrong):
            raise OptionError(
                f"token {int(wrong[0])} does not fit {self._dtype.name} (0 to {most}): line "
                f"{self._line:,} of {self._from}. Give token_dtype=np.{holding(int(ids.max()))}.",
                path=self._from,
                line_number=self._line,
            )
