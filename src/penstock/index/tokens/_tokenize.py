"""The two doors of tokenising: text files as a whole, and samples line by line."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.errors import OptionError
from penstock.index._indexer import IndexStore, IndexStoreInterface
from penstock.index._listing import IndexPlace, folder_path, place_beside
from penstock.index._names import TOKEN_FOLDER
from penstock.index.tokenizers._encoded import PartsTokenizer
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.index.tokens._build import build
from penstock.index.tokens._documents import TokenWork
from penstock.index.tokens._inputs import given_input, input_of
from penstock.index.tokens._job import POSTFIX, TokenJob, TokenReport
from penstock.index.tokens._pack import PackingName, Remainder, pack_options, token_id, token_type
from penstock.index.tokens._texts import TEXT, ProcessTextLineFunc, text_of
from penstock.order import whole_number
from penstock.storage import StorageOptions, join, locate

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

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
        return build(replace(self.job, texts=self.job.texts.again()).checked())


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
        place = place_beside(home, options)
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
