"""`penstock tokenize`: text into samples of tokens, once."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np

import penstock
from penstock.cli._paths import given_format
from penstock.cli._terminal import Progress, Report
from penstock.cli._units import counted
from penstock.cli._verb import COUNT, FINDINGS, FROM_0, VerbCall, flag, option, verb, workers_option
from penstock.errors import (
    IndexExistsError,
    MalformedLineError,
    ObjectExistsError,
    OptionError,
    PenstockError,
    StorageError,
)
from penstock.index import (
    create_tokenize_and_index_jsonl_text_func,
    input_of,
    load_tokenizer,
)
from penstock.storage import hidden_folders_in, is_remote, locate

if TYPE_CHECKING:
    from penstock.index import TokenReport

_NARROW = 1 << 16
"""So many token ids fit two bytes."""


@verb(
    "penstock tokenize corpus tokens --tokenizer tokenizer.json --sample-size 2048",
    "penstock tokenize 'web/*.jsonl.zst' tokens --tokenizer bpe.model --sample-size 4096 "
    "--packing best_fit",
    "penstock tokenize corpus tokens --tokenizer tokenizer.json --sample-size 2048 "
    "--text-key meta.body --eos 50256 --workers 8",
    "penstock tokenize s3://bucket/corpus tokens --tokenizer tokenizer.json --sample-size 2048 "
    "-o region=eu-west-1",
    "penstock tokenize qa.parquet tokens --tokenizer org/model --sample-size 2048 "
    "--template 'Q: {question}\\nA: {answer}'",
    "penstock tokenize chats.jsonl tokens --tokenizer model/ --sample-size 4096 "
    "--packing best_fit --messages messages",
    path=False,
    reads=True,
)
@click.argument("src")
@click.argument("dst")
@option(
    "--tokenizer FILE",
    "tokenizer.json (tokenizers, transformers), or the .model of sentencepiece; a folder with one; "
    "or the name of a model in the local Hugging Face cache, or of an encoding in tiktoken's. "
    "Nothing is downloaded.",
    dest="file",
    required=True,
)
@option(
    "--sample-size N",
    "Tokens of every sample: the context length of the model. Without it a sample is a "
    "document, however long, without EOS.",
    type=COUNT,
)
@option(
    "--packing concat|best_fit",
    "concat: one stream, cut every N tokens. best_fit: documents stay whole where they fit, "
    "and samples are filled up with padding.",
    default="concat",
)
@option(
    "--text-key FIELD",
    "Field of a record that holds the text, or a path: meta.body.",
    default="text",
)
@option(
    "--template TEXT",
    "Text of a record with its fields in braces: 'Q: {question}\\nA: {answer}'. Only the answers "
    "are trained. With --messages: of one turn, by default that of ChatML.",
)
@option("--messages FIELD", "Field of a chat: a list of messages with role and content.")
@option(
    "--answers NAMES",
    "Fields of --template that are trained, with commas between; by default the last. With "
    "--messages: roles, by default assistant and gpt.",
)
@option("--where EXPR", "Only the records for which this holds: \"lang == 'en' and score > 0.5\".")
@option(
    "--dtype auto|uint16|uint32",
    "Type of the tokens on disk; auto takes uint16 where it fits.",
    default="auto",
)
@option("--eos ID", "Token that ends every document; by default the tokenizer's own.", type=FROM_0)
@option("--pad ID", "Token that fills up samples; by default that of --eos.", type=FROM_0)
@flag("--keep-remainder", "Fill up the last sample of concat instead of dropping its tokens.")
@option(
    "--on-error raise|skip",
    "At a line without a text: raise names it and stops, skip counts it.",
    default="raise",
)
@workers_option("tokenise")
@flag("--overwrite", "Replace the tokens that are in DST already.")
def tokenize(  # noqa: PLR0913 (one argument an option)
    call: VerbCall,
    *,
    src: str,
    dst: str,
    file: str,
    sample_size: int | None,
    packing: Literal["concat", "best_fit"],
    dtype: Literal["auto", "uint16", "uint32"],
    eos: int | None,
    pad: int | None,
    keep_remainder: bool,
    template: str | None,
    answers: str | None,
    where: str | None,
    workers: int | None,
    **given: Any,  # noqa: ANN401 (text_key, messages, on_error and overwrite, passed on)
) -> Report:
    """Tokenise the text of SRC once, and pack it into samples of N tokens in the folder DST.

    SRC is a file, a folder, a pattern in quotes, or a URL, of any format with records.
    penstock.open(DST) gives any sample by its number; penstock show DST --decode FILE shows its
    text.

    DST appears as a whole. Text is tokenised in parts of 2 to 16 MiB; killed or interrupted, the
    same command goes on with those that were finished, unless SRC or an option changed. Exit code 1
    means that a line had no text, unless such lines are skipped, or that no sample came out.
    """
    _check_packing(sample_size, packing, pad, keep_remainder=keep_remainder)
    known = load_tokenizer(file)
    ends = known.eos if eos is None else eos
    if ends is None and sample_size is not None:
        raise OptionError(f"{file} does not say which token ends a document. Give its id: --eos ID")
    what: object = src
    row, chosen, split = given_format()
    if any(one is not None for one in (where, row, chosen, split)):
        source = penstock.open(
            src, format=row, format_options=chosen, split=split, storage_options=call.options
        )
        what = source if where is None else source.where(where)
    texts = input_of(what, call.options)
    is_narrow = dtype == "uint16" or (dtype == "auto" and known.vocabulary <= _NARROW)
    width: np.dtype[np.unsignedinteger[Any]] = np.dtype(np.uint16 if is_narrow else np.uint32)
    ending = "--eos" if eos is not None else f"the token that ends a document in {file},"
    used = ends if eos is not None or sample_size else None
    for name, token in ((ending, used), ("--pad", pad)):
        if token is not None and token >= known.vocabulary:
            have = f"it has {known.vocabulary:,}, from 0 to {known.vocabulary - 1}"
            raise OptionError(f"{name} {token} is no token of {file}: {have}.")
        if token is not None and token > np.iinfo(width).max:
            raise OptionError(f"{name} {token} does not fit {width.name}. Give --dtype uint32.")
    _check_folder(dst)
    left = PartsLeft(dst)
    with TokenProgress(texts.bytes, left) as progress, _command_line_errors(left):
        result = create_tokenize_and_index_jsonl_text_func(
            known,
            ends,
            texts,
            output_base_path=dst,
            token_dtype=width,
            num_workers=workers,
            progress=progress,
            storage_options=call.options,
            sample_size=sample_size,
            packing=packing,
            pad_idx=pad,
            keep_remainder="pad" if keep_remainder else "drop",
            template=None if template is None else _unescaped(template),
            answers=None if answers is None else answers.split(","),
            **given,
        )()
    made_with = {
        "path": dst,
        "source": src,
        "tokenizer": file,
        "dtype": width.name,
        "sample_size": sample_size,
        "packing": packing if sample_size else None,
        "files": texts.files,
        "seconds": round(result.seconds, 3),
    }
    return _report(made_with, result, left.kept, progress.rates(result.seconds))


def _unescaped(template: str) -> str:
    r"""Return a template with newlines and tabs where a command line has `\n` and `\t`."""
    return template.replace("\\n", "\n").replace("\\t", "\t")


_EXISTS = "Give another DST. --overwrite replaces tokens only, in a local folder."
_REMEDIES: dict[type[Exception], str] = {
    MalformedLineError: "Repair it, give another --text-key FIELD or --template TEXT (a chat: "
    "--messages FIELD), or leave such lines out: --on-error skip.",
    IndexExistsError: _EXISTS,
    ObjectExistsError: _EXISTS,
    StorageError: "Give another DST, or free space there.",
}
_OF_OPTIONS = {
    "token_dtype": "Give --dtype uint32.",
    "overwrite": "Instead of --overwrite, remove them and their index, or give another DST.",
}
"""The remedy for an option that an `OptionError` names."""


@contextmanager
def _command_line_errors(left: PartsLeft) -> Iterator[None]:
    """Give errors command-line remedies, and note on an interruption which parts are kept."""
    try:
        yield
    except KeyboardInterrupt as failure:
        failure.add_note(left.note())
        raise
    except PenstockError as failure:
        remedies = (text for kind, text in _REMEDIES.items() if isinstance(failure, kind))
        if failure.remedy:
            usual = _OF_OPTIONS.get(getattr(failure, "option", ""), failure.remedy)
            failure.advise(next(remedies, usual))
        if isinstance(failure, IndexExistsError | ObjectExistsError):
            raise OptionError(str(failure)) from None
        raise


def _check_packing(
    sample_size: int | None, packing: str, pad: int | None, *, keep_remainder: bool
) -> None:
    """Refuse options that contradict each other."""
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


def _check_folder(dst: str) -> None:
    """Refuse a DST that is, or lies below, a file."""
    if is_remote(dst):
        return
    place = Path(locate(dst)[1])
    nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    if not nearest.is_dir():
        raise OptionError(f"DST {dst}: {nearest} is a file. Give DST a folder, new or old.")


def _report(made_with: dict[str, Any], result: TokenReport, kept_parts: int, rate: str) -> Report:
    dst, size, tokens = made_with["path"], made_with["sample_size"], result.tokens
    samples = counted(result.samples, "sample")
    if size is None:
        samples += ", one a document, without EOS (--sample-size N packs them)"
    else:
        samples += f" of {counted(size, 'token')}, {made_with['packing']}"
    if kept_parts:
        rate += f", gone on with {counted(kept_parts, 'part')} of an earlier run"
    report = Report(
        f"{dst}: {counted(result.documents, 'document')}, {counted(tokens, 'token')} "
        f"({made_with['dtype']}) in {samples}",
        f"  {counted(made_with['files'], 'file')}, {result.seconds:.1f} s: {rate}",
        **asdict(result) | made_with,
        kept_parts=kept_parts,
    )
    for name, count in (
        ("padding", result.padding),
        ("dropped behind the last full sample", result.dropped),
    ):
        if count:
            report.line(f"  {name}: {count:,} ({count / (tokens + count):.2%}) of all tokens")
    if result.trained is not None:
        share = result.trained / max(1, tokens)
        report.line(
            f"  trained: {result.trained:,} ({share:.2%}) of all tokens; others have no label"
        )
    if result.bad_documents:
        report.line(f"  {counted(result.bad_documents, 'line')} without a text left out")
    if result.samples:
        use = f"penstock.open({json.dumps(dst)})"
        if size is not None:
            use = f"penstock.DataLoader({use}, penstock.Tokens({size}), batch_size=8, shuffle=True)"
        tokenizer = shlex.quote(made_with["tokenizer"])
        report.line(
            f"look at it: penstock show {shlex.quote(dst)} 0 --decode {tokenizer}", f"use it: {use}"
        )
    elif not result.dropped or size is None:
        report.complain(FINDINGS, f"no sample came out: {made_with['source']} holds no documents.")
    else:
        report.complain(
            FINDINGS,
            f"no sample came out: all {counted(result.dropped, 'token')} were dropped, because "
            f"they do not fill one of {size:,}. Give a smaller --sample-size, or --keep-remainder "
            "or --packing best_fit, which fill up; and --overwrite, because the empty folder is "
            "there now.",
        )
    return report


class PartsLeft:
    """The finished parts of an earlier run, in a hidden folder in DST."""

    def __init__(self, dst: str) -> None:
        self.dst = dst
        self._before = self._present()

    @cached_property
    def kept(self) -> int:
        """How many parts this run takes over; asked before it begins its first part.

        A builder first removes the parts of runs with other inputs or options.
        """
        return len(self._before & self._present())

    def note(self) -> str:
        """Return what an interrupted run leaves."""
        if is_remote(self.dst):
            return "Parts that were finished are kept: the same command goes on with them."
        count = len(self._present())
        if not count:
            return f"No part was finished: nothing of it stays in {self.dst}."
        are = "is" if count == 1 else "are"
        return (
            f"{counted(count, 'finished part')} of the text {are} kept, hidden, in {self.dst}: "
            "the same command goes on with what is left."
        )

    def _present(self) -> set[Path]:
        if is_remote(self.dst):
            return set()  # Those lie in the cache directory, and are not reported.
        folders = [Path(one.entry.name) for one in hidden_folders_in(locate(self.dst)[1])]
        return {part for folder in folders for part in folder.glob("*.unit")}


class TokenProgress(Progress):
    """Bytes that were read, with documents and tokens a second beside them."""

    def __init__(self, total: int, left: PartsLeft | None = None, *, every: float = 30.0) -> None:
        super().__init__(total, every=every)
        self._left = left
        self._counts = 0
        self.now = (0, 0)
        """Documents and tokens of this run, without those of an earlier one."""

    def add(self, count: int) -> None:
        """Count bytes that were read; those of an earlier run come first, all at once."""
        if self._left is not None:
            _ = self._left.kept
        super().add(count)

    def count(self, documents: int, tokens: int) -> None:
        """Count what a part became; parts of an earlier run come first."""
        self._counts += 1
        if self._left is None or self._counts > self._left.kept:
            self.now = (self.now[0] + documents, self.now[1] + tokens)
        if self._bar is not None:
            self._bar.set_postfix_str(self.rates(), refresh=False)

    def _line(self) -> str:
        return f"{super()._line()}; {self.rates()}"

    def rates(self, seconds: float | None = None) -> str:
        """Return documents and tokens a second, by default until now."""
        seconds = max(1e-9, time.monotonic() - self._start if seconds is None else seconds)
        documents, tokens = self.now
        rates = round(documents / seconds), round(tokens / seconds)
        return f"{counted(rates[0], 'document')}/s, {counted(rates[1], 'token')}/s"
