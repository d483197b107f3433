"""The two doors of tokenising: text files as a whole, and samples line by line."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.errors import MalformedLineError, ObjectExistsError, OptionError
from penstock.index._indexer import IndexStore, SampleData
from penstock.index._listing import INDEX_FOLDER, IndexPlace, folder_path
from penstock.index._names import TOKEN_FOLDER
from penstock.index.tokenizers._parts import PartsTokenizer
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.index.tokens._build import build
from penstock.index.tokens._documents import TokenWork
from penstock.index.tokens._inputs import given_input, input_of
from penstock.index.tokens._job import POSTFIX, TokenJob, free_name
from penstock.index.tokens._pack import pack_options, refuse_misfit, token_id, token_type
from penstock.index.tokens._texts import TEXT, BadText, TextCall, text_of
from penstock.order import whole_number
from penstock.storage import LocalStore, StorageOptions, join, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

    from penstock.index._indexer import IndexStoreInterface
    from penstock.index._meta import TokensMeta
    from penstock.index._sample_schema import SampleSchema
    from penstock.index.tokens._job import TokenReport
    from penstock.index.tokens._pack import PackingName, Remainder
    from penstock.index.tokens._texts import ProcessTextLineFunc
    from penstock.storage import Draft
    from penstock.work import View

_log = logging.getLogger("penstock.index")
_UNIT_BYTES = 16 << 20

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class TokenIndexer:
    """Tokenises text files, packs the tokens into samples and indexes these, when called."""

    job: TokenJob

    def __call__(self) -> TokenReport:
        """Tokenise the text files as they are now, and return the report."""
        return build(self.job.of_now())


def create_tokenize_and_index_jsonl_text_func(  # noqa: PLR0913, PLR0917 (as data-forager has it)
    tokenizer_func: Callable[..., Any] | object,
    eos_idx: int | None,
    input_base_path: object = None,
    input_file_paths: Sequence[Path] | None = None,
    output_base_path: Path | None = None,
    index_store: IndexStoreInterface | None = None,
    process_text_line_func: ProcessTextLineFunc | None = None,
    logger: logging.Logger | None = None,
    name: str | None = None,  # noqa: ARG001 (accepted for code that passes it)
    *,
    sample_size: int | None = None,
    token_dtype: DTypeLike = np.uint16,
    base_output_path: Path | None = None,
    file_name_postfix: str = POSTFIX,
    text_key: str = TEXT,
    template: str | Callable[[dict[str, object]], object] | None = None,
    messages: str | None = None,
    answers: str | Sequence[str] | None = None,
    batched: bool | None = None,
    num_workers: int | None = None,
    packing: PackingName = "concat",
    keep_remainder: Remainder = "drop",
    pad_idx: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    overwrite: bool = False,
    progress: bool | View | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> TokenIndexer:
    r"""Return an indexer that tokenises text and packs the tokens into samples.

    With `sample_size` a document is followed by `eos_idx`, and all documents, one after the other
    and across files, are cut into samples of so many tokens; without it a document is a sample.
    The samples do not depend on the number of processes. Tokens and index appear when everything is
    done; after a kill, the same call continues with the finished work.

    A document is in memory as a whole: its line, its text and its ids together take about three
    times the bytes of the line, and the tokenizer needs memory for a text of that length.

    Args:
        tokenizer_func: Makes token ids of a text, or of a list of texts: a function, or a tokenizer
            of tokenizers, tiktoken, sentencepiece or transformers.
        eos_idx: The token that ends a document; needed with `sample_size`.
        input_base_path: A folder; its JSON Lines files are read, with all below it. Or anything
            else that `penstock.open` opens: Parquet, CSV, a table, a list of dicts; or a source,
            also a view: `ds.where(…)`. These need an output_base_path.
        input_file_paths: The files to read, instead of a folder.
        output_base_path: The folder of `tokenized-samples/` and `index/`; by default that of the
            input, which must not have an index of its records.
        index_store: Where samples are indexed; by default in `index/`.
        process_text_line_func: Makes the text of a line that has no field of it, instead of
            `text_key`. Python per record; one process where the script defines it.
        logger: Gets messages and warnings; by default the logger `penstock.index`.
        name: Ignored.
        sample_size: Tokens of a sample: the longest row that you train with.
        token_dtype: Type in which tokens are stored; a token that does not fit raises. More than
            65,536 ids need `np.uint32`, which takes twice the space.
        base_output_path: The folder of the token files.
        file_name_postfix: Part of a token file's name behind the name of its text file.
        text_key: Name or path of the field of the text: `meta.body`.
        template: Text with fields in braces, of which only the answers are trained; with `messages`
            that of one turn, by default ChatML. Or a function from a record to its text, or to a
            list of pairs: text, and whether it is trained. Which tokens are trained is stored
            beside the tokens, and `penstock.Tokens` makes the labels of others -100.
        messages: Name or path of the field of a chat: a list of dicts with `role` and `content`
            (or `from` and `value`, with a template that says so).
        answers: Fields of the template that are trained, by default its last one; with `messages`
            the roles whose turns are, by default `assistant` and `gpt`.
        batched: Whether `tokenizer_func` takes a list of texts; by default its annotation decides.
        num_workers: Processes; by default one a processor, or 0, the caller itself, if there is
            little to do or the tokenizer does not pickle. Each has its own tokenizer in memory.
        packing: `best_fit` keeps documents whole if they fit into a sample, and fills samples up
            with `pad_idx`, for 60 bytes of memory a document; `concat` cuts the stream.
        keep_remainder: `pad` fills the last sample up with `pad_idx`; `drop` drops and counts the
            tokens that do not fill a sample.
        pad_idx: The token that fills samples up; by default `eos_idx`.
        on_error: `skip` sets lines aside that are no documents, and lists them in
            `index/bad_lines.ndjson`.
        overwrite: Replace existing tokens, which stay until the new ones are complete. In an object
            store nothing is replaced: remove the old tokens first.
        progress: Show a bar: by default in a terminal. Or an object whose `add` counts bytes.
        storage_options: For files in object stores.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "to be"}\n{"text": "or not"}\n')
    >>> indexer = create_tokenize_and_index_jsonl_text_func(
    ...     lambda text: list(text.encode()), 0, folder, sample_size=4
    ... )
    >>> report = indexer()
    >>> report.documents, report.samples, report.dropped
    (2, 3, 1)
    >>> (folder / "tokenized-samples" / "a-tokenized-samples.bin").stat().st_size
    24
    """
    dtype = token_type(token_dtype)
    eos = None if eos_idx is None else token_id("eos_idx", eos_idx, dtype)
    pack = pack_options(sample_size, packing, keep_remainder, eos, pad_idx, dtype)
    if on_error not in ("raise", "skip"):
        raise OptionError(f'on_error={on_error!r}: expected "raise" or "skip".')
    if num_workers is not None:
        whole_number("num_workers", num_workers, 0)
    text = text_of(text_key, process_text_line_func, template, messages, answers)
    options = StorageOptions(storage_options)
    texts = input_of(given_input(input_base_path, input_file_paths), options)
    store = None if type(index_store) is IndexStore else index_store
    output = output_base_path
    if output is None and not input_file_paths:
        output = texts.folder  # A file, a pattern or a source has none.
    elif output is None and isinstance(input_base_path, str | os.PathLike):
        output = input_base_path
    tokenizer = tokenizer_of(tokenizer_func, batched=batched)
    place, folder = token_places(output, base_output_path, index_store, options)
    return TokenIndexer(
        TokenJob(
            texts=texts,
            work=TokenWork(
                text=text,
                tokenizer=PartsTokenizer(tokenizer) if text.is_masked else tokenizer,
                dtype=dtype,
                eos=None if sample_size is None else eos,
                skips=on_error == "skip",
            ),
            pack=pack,
            place=place,
            folder=folder,
            postfix=file_name_postfix,
            store=store,
            workers=num_workers,
            overwrite=overwrite,
            progress=progress,
            unit_bytes=_UNIT_BYTES,
            log=logger or _log,
        ).checked()
    )


def token_places(
    output: Path | None,
    token_folder: Path | None,
    store: IndexStoreInterface | None,
    options: StorageOptions,
) -> tuple[IndexPlace, str]:
    """Return the place of the index, and the folder of the token files."""
    base, folder = (
        None if path is None else folder_path(*locate(path, options))
        for path in (output, token_folder)
    )
    is_ours = store is None or type(store) is IndexStore
    home = base if store is None else base or folder
    if type(store) is IndexStore:
        place, base = store.place, base or store.base_path
    elif home is not None:
        place = IndexPlace(join(home, INDEX_FOLDER), home, options, beside=True)
    else:
        raise OptionError(
            "nothing says where tokens and their index go. Give output_base_path=, a folder for "
            "both (by default it is input_base_path=, where that is a folder), or index_store= "
            "for the index and base_output_path= for the tokens."
        )
    folder = folder or join(base or place.base, TOKEN_FOLDER)
    if is_ours and not f"{folder}/".startswith(f"{place.base.rstrip('/')}/"):
        raise OptionError(
            f"the token files would go to {folder}, which does not lie below {place.base}, and an "
            "index names no others. Give base_output_path= a folder below, or output_base_path= "
            "one above."
        )
    return place, folder


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
        path = os.path.abspath(text_file)
        folder, base = os.path.split(path)
        if self._folder is None:
            folder, relative = join(folder, TOKEN_FOLDER), base
        else:
            others = [os.path.dirname(os.path.abspath(one)) for one in self._paths]
            common = os.path.commonpath([folder, *others])
            folder, relative = os.path.abspath(self._folder), os.path.relpath(path, common)
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
