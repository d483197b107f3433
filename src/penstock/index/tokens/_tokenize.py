"""The indexer that tokenises text files and packs the tokens into samples."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.errors import OptionError
from penstock.index._indexer import IndexStore
from penstock.index._listing import INDEX_FOLDER, IndexPlace, folder_path
from penstock.index._names import TOKEN_FOLDER
from penstock.index.tokenizers._tokenizer import tokenizer_of
from penstock.index.tokens._build import build
from penstock.index.tokens._documents import TextCall, TextField, TokenWork
from penstock.index.tokens._job import POSTFIX, TokenJob, text_files
from penstock.index.tokens._pack import pack_options, token_id, token_type
from penstock.order import whole_number
from penstock.storage import StorageOptions, join, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import DTypeLike

    from penstock.index._indexer import IndexStoreInterface
    from penstock.index.tokens._generator import ProcessTextLineFunc
    from penstock.index.tokens._job import TokenReport
    from penstock.index.tokens._pack import PackingName, Remainder
    from penstock.work import View

_log = logging.getLogger("penstock.index")
_TEXT = "text"
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
    input_base_path: Path | None = None,
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
    text_key: str = _TEXT,
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
    r"""Return an indexer that tokenises JSON Lines files and packs the tokens into samples.

    With `sample_size` a document is followed by `eos_idx`, and all documents, one after the other
    and across files, are cut into samples of so many tokens; without it a document is a sample.
    The samples do not depend on the number of processes. Tokens and index appear when everything is
    done; after a kill, the same call continues with the finished work.

    A document is in memory as a whole: its line, its text and its ids together take about three
    times the bytes of the line, and the tokenizer needs memory for a text of that length.

    Args:
        tokenizer_func: Makes token ids of a text, or of a list of texts: a function, or a tokenizer
            of tokenizers, tiktoken, sentencepiece or transformers.
        eos_idx: The token that ends a document.
        input_base_path: A folder; its JSON Lines files are read, with all below it.
        input_file_paths: The files to read, instead of a folder.
        output_base_path: The folder of `tokenized-samples/` and `index/`; by default that of the
            input.
        index_store: Where samples are indexed; by default in `index/`.
        process_text_line_func: Makes the text of a line; by default `text_key` does.
        logger: Gets messages and warnings; by default the logger `penstock.index`.
        name: Ignored.
        sample_size: Tokens of a sample.
        token_dtype: Type in which tokens are stored; a token that does not fit raises.
        base_output_path: The folder of the token files.
        file_name_postfix: Part of a token file's name behind the name of its text file.
        text_key: Name or path of the field of the text: `meta.body`.
        batched: Whether `tokenizer_func` takes a list of texts; by default its annotation decides.
        num_workers: Processes; by default one a processor, or 0, the caller itself, if there is
            little to do or the tokenizer does not pickle.
        packing: `best_fit` keeps documents whole if they fit into a sample, and fills samples up
            with `pad_idx`; `concat` cuts the stream of documents.
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
    if process_text_line_func is not None and text_key != _TEXT:
        raise OptionError(
            f"text_key={text_key!r} and process_text_line_func both say what the text of a line "
            "is. Give one of them."
        )
    options = StorageOptions(storage_options)
    files = input_base_path if input_file_paths is None else input_file_paths
    if files is None:
        raise OptionError(
            "nothing says what to tokenise. Give input_base_path=, a folder of JSON Lines files, "
            "or input_file_paths=, the files themselves."
        )
    listing = text_files(files, options)
    store = None if type(index_store) is IndexStore else index_store
    output = output_base_path if output_base_path is not None else input_base_path
    if output is input_base_path and output is not None and not input_file_paths:
        output = listing.folder  # A file or a pattern has none.
    place, folder = token_places(output, base_output_path, index_store, options)
    return TokenIndexer(
        TokenJob(
            listing=listing,
            options=options,
            work=TokenWork(
                text=TextField(text_key)
                if process_text_line_func is None
                else TextCall(process_text_line_func),
                tokenizer=tokenizer_of(tokenizer_func, batched=batched),
                dtype=dtype,
                eos=None if sample_size is None else eos,
                skips=on_error == "skip",
            ),
            pack=pack,
            place=place,
            folder=folder,
            names=[],
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
    if type(store) is IndexStore:
        base: str | None = store.base_path
        place = store.place
    else:
        base = None if output is None else _absolute(output, options)
        home = base or (None if token_folder is None else _absolute(token_folder, options))
        if home is None or (base is None and store is None):
            raise OptionError(
                "nothing says where tokens and their index go. Give output_base_path=, a folder "
                "for both (by default it is input_base_path=, where that is a folder), or "
                "index_store= for the index and base_output_path= for the tokens."
            )
        place = IndexPlace(join(home, INDEX_FOLDER), home, options, beside=True)
    if token_folder is not None:
        folder = _absolute(token_folder, options)
    else:
        above = base if output is None else _absolute(output, options)
        folder = join(above or place.base, TOKEN_FOLDER)
    is_ours = store is None or type(store) is IndexStore
    if is_ours and not f"{folder}/".startswith(f"{place.base.rstrip('/')}/"):
        raise OptionError(
            f"the token files would go to {folder}, which does not lie below {place.base}, and an "
            "index names no others. Give base_output_path= a folder below, or output_base_path= "
            "one above."
        )
    return place, folder


def _absolute(path: Path, options: StorageOptions) -> str:
    return folder_path(*locate(path, options))
