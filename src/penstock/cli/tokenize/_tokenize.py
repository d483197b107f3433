"""`penstock tokenize`: text into samples of tokens, once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np

from penstock.cli._terminal import echo, echo_json
from penstock.cli._verb import FINDINGS, FINE, Verb, examples, json_option, storage_option
from penstock.cli.tokenize._errors import in_options
from penstock.cli.tokenize._parts import PartsLeft, TokenProgress
from penstock.cli.tokenize._text import Made, document, nothing_made, summary
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.index import (
    LINES,
    create_tokenize_and_index_jsonl_text_func,
    list_files,
    load_tokenizer,
)
from penstock.storage import is_remote, locate

if TYPE_CHECKING:
    from penstock.index import Listing, NamedTokenizer
    from penstock.storage import StorageOptions

_NARROW = 1 << 16
"""So many token ids fit two bytes."""


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock tokenize corpus tokens --tokenizer tokenizer.json --sample-size 2048",
        "penstock tokenize 'web/*.jsonl.zst' tokens --tokenizer bpe.model --sample-size 4096 "
        "--packing best_fit",
        "penstock tokenize corpus tokens --tokenizer tokenizer.json --sample-size 2048 "
        "--text-key meta.body --eos 50256 --workers 8",
        "penstock tokenize s3://bucket/corpus tokens --tokenizer tokenizer.json --sample-size 2048 "
        "-o region=eu-west-1",
    ),
)
@click.argument("src")
@click.argument("dst")
@click.option(
    "--tokenizer",
    "file",
    metavar="FILE",
    required=True,
    help="tokenizer.json (tokenizers, transformers), or the .model of sentencepiece.",
)
@click.option(
    "--sample-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens of every sample. Without it a sample is a document, however long, without EOS.",
)
@click.option(
    "--packing",
    type=click.Choice(["concat", "best_fit"]),
    default="concat",
    show_default=True,
    help="concat: one stream, cut every N tokens. best_fit: documents stay whole where they fit, "
    "and samples are filled up.",
)
@click.option(
    "--text-key",
    metavar="FIELD",
    default="text",
    show_default=True,
    help="Where the text stands in a record; a path goes into objects: meta.body.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "uint16", "uint32"]),
    default="auto",
    show_default=True,
    help="Of the tokens on disk; auto: uint16 where the vocabulary fits.",
)
@click.option(
    "--eos",
    type=click.IntRange(min=0),
    metavar="ID",
    help="The token that ends every document; by default the tokenizer's own.",
)
@click.option(
    "--pad",
    type=click.IntRange(min=0),
    metavar="ID",
    help="The token that fills up samples; by default that which ends documents.",
)
@click.option(
    "--keep-remainder",
    is_flag=True,
    help="Fill up the last sample of concat, in place of dropping its tokens.",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Of a line without a text: stop and name it, or leave it out and count it.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes that tokenise; by default one a processor. The samples do not depend on it.",
)
@click.option("--overwrite", is_flag=True, help="Replace the tokens that are in DST.")
@storage_option
@json_option
def tokenize(  # noqa: PLR0913 (one argument an option)
    *,
    src: str,
    dst: str,
    file: str,
    sample_size: int | None,
    packing: Literal["concat", "best_fit"],
    text_key: str,
    dtype: Literal["auto", "uint16", "uint32"],
    eos: int | None,
    pad: int | None,
    keep_remainder: bool,
    on_error: Literal["raise", "skip"],
    workers: int | None,
    overwrite: bool,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Tokenise the text of SRC once, and pack it into samples of N tokens in the folder DST.

    SRC is JSON Lines: a file, a folder, a pattern in quotes, or a URL. penstock.open(DST) gives
    any sample by its number; penstock show DST --decode FILE shows what is in it.

    DST appears as a whole. Text is tokenised in parts of 2 to 16 MiB; killed or interrupted, the
    same command goes on with those that were finished, unless SRC or an option changed. Exit code 1
    means that a line had no text, unless such lines are skipped, or that no sample came out.
    """
    packed = _packed(sample_size, packing, pad, keep_remainder=keep_remainder)
    known = load_tokenizer(file)
    ends = known.eos if eos is None else eos
    if ends is None and sample_size is not None:
        raise OptionError(f"{file} does not say which token ends a document. Give its id: --eos ID")
    for option, token in (("--eos", eos), ("--pad", pad)):
        _check_known(option, token, known, file)
    listing = _listed(src, storage_options)
    width = _dtype(dtype, known)
    if sample_size and eos is None and ends is not None and ends > np.iinfo(width).max:
        raise OptionError(
            f"--dtype {dtype} does not hold {ends}, the token that ends a document in {file}. Give "
            "--dtype uint32, or another token: --eos ID"
        )
    _check_folder(dst)
    left = PartsLeft(dst)
    with TokenProgress(listing.bytes, left) as progress, in_options(left):
        report = create_tokenize_and_index_jsonl_text_func(
            known.tokenizer,
            ends,
            **_inputs(src, listing),
            output_base_path=dst,
            token_dtype=width,
            text_key=text_key,
            num_workers=workers,
            on_error=on_error,
            overwrite=overwrite,
            progress=progress,
            storage_options=storage_options,
            **packed,
        )()
    made = Made(
        src,
        dst,
        file,
        report,
        sample_size,
        packing,
        width.name,
        files=len(listing.files),
        now=progress.now,
        kept_parts=left.kept,
    )
    if as_json:
        echo_json(document(made))
    else:
        echo(summary(made))
    if not report.samples:
        echo(f"penstock: {nothing_made(made)}", err=True)
        return FINDINGS
    return FINE


def _packed(
    sample_size: int | None,
    packing: Literal["concat", "best_fit"],
    pad: int | None,
    *,
    keep_remainder: bool,
) -> dict[str, Any]:
    """Return how documents become samples, or say which options do not go together."""
    fills_up = packing == "best_fit" or keep_remainder
    if sample_size is None and fills_up:
        option = "--packing best_fit" if packing == "best_fit" else "--keep-remainder"
        raise OptionError(f"{option} is about samples of one size: give --sample-size N, too.")
    if keep_remainder and packing == "best_fit":
        raise OptionError("--keep-remainder: best_fit keeps every token; leave it out.")
    if pad is not None and not fills_up:
        raise OptionError(
            "--pad: nothing is filled up. Give --packing best_fit, or --keep-remainder, too."
        )
    return {
        "sample_size": sample_size,
        "packing": packing,
        "pad_idx": pad,
        "keep_remainder": "pad" if keep_remainder else "drop",
    }


def _check_known(option: str, token: int | None, known: NamedTokenizer, file: str) -> None:
    if token is not None and token >= known.vocabulary:
        raise OptionError(
            f"{option} {token} is no token of {file}: it has {known.vocabulary:,}, from 0 to "
            f"{known.vocabulary - 1}."
        )


def _check_folder(dst: str) -> None:
    """Refuse a DST that is, or lies below, a file."""
    if is_remote(dst):
        return
    place = Path(locate(dst)[1])
    for folder in (place, *place.parents):
        if folder.exists():
            if not folder.is_dir():
                raise OptionError(f"DST {dst}: {folder} is a file. Give DST a folder, new or old.")
            return


def _dtype(asked: str, known: NamedTokenizer) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the narrowest type for every token of the vocabulary, or the one asked for."""
    if asked != "auto":
        return np.dtype(asked)
    return np.dtype(np.uint16 if known.vocabulary <= _NARROW else np.uint32)


def _listed(src: str, options: StorageOptions) -> Listing:
    """Return the files of SRC."""
    listing = list_files(src, LINES.endings, options)
    if not listing.files:
        ends = ", ".join(LINES.endings)
        message = f"{src} holds no JSON Lines ({ends}), and nothing else is tokenised."
        raise ObjectNotFoundError(message, path=src)
    return listing


def _inputs(src: str, listing: Listing) -> dict[str, Any]:
    if listing.folder is not None:
        return {"input_base_path": src}
    return {"input_file_paths": [found.path for found in listing.files]}
