"""What `penstock tokenize` tells when it is done."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli._units import counted
from penstock.cli.tokenize._parts import rates

if TYPE_CHECKING:
    from penstock.cli.tokenize._parts import Now
    from penstock.index import TokenReport


@dataclass(frozen=True, slots=True)
class Made:
    """What was made of what."""

    src: str
    dst: str
    tokenizer: str
    report: TokenReport
    sample_size: int | None
    packing: str
    dtype: str
    files: int
    now: Now
    """What this run made; the rest was there already."""
    kept_parts: int
    """Parts of the text that an earlier run had finished."""


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.2%})" if whole else f"{part:,}"


def document(made: Made) -> dict[str, object]:
    """Return what was made as one JSON document."""
    report = made.report
    return {
        "path": made.dst,
        "source": made.src,
        "tokenizer": made.tokenizer,
        "dtype": made.dtype,
        "sample_size": made.sample_size,
        "packing": made.packing if made.sample_size else None,
        "files": made.files,
        "documents": report.documents,
        "tokens": report.tokens,
        "samples": report.samples,
        "dropped": report.dropped,
        "padding": report.padding,
        "bad_documents": report.bad_documents,
        "kept_parts": made.kept_parts,
        "seconds": round(report.seconds, 3),
    }


def summary(made: Made) -> str:
    """Return the same for a person, with what to do next."""
    report = made.report
    samples = counted(report.samples, "sample")
    if made.sample_size is None:
        samples += ", one a document, without EOS (--sample-size N packs them)"
    else:
        samples += f" of {counted(made.sample_size, 'token')}, {made.packing}"
    documents, tokens = counted(report.documents, "document"), counted(report.tokens, "token")
    rate = rates(made.now, report.seconds)
    if made.kept_parts:
        rate += f", gone on with {counted(made.kept_parts, 'part')} of an earlier run"
    lines = [
        f"{made.dst}: {documents}, {tokens} ({made.dtype}) in {samples}",
        f"  {counted(made.files, 'file')}, {report.seconds:.1f} s: {rate}",
    ]
    if report.padding:
        share = _share(report.padding, report.tokens + report.padding)
        lines.append(f"  padding: {share} of all tokens")
    if report.dropped:
        share = _share(report.dropped, report.tokens + report.dropped)
        lines.append(f"  dropped behind the last full sample: {share} of all tokens")
    if report.bad_documents:
        lines.append(f"  {counted(report.bad_documents, 'line')} without a text left out")
    return "\n".join([*lines, *(_next(made) if report.samples else [])])


def nothing_made(made: Made) -> str:
    """Return why there is no sample, and what to do about it."""
    dropped, size = made.report.dropped, made.sample_size
    if not dropped or size is None:
        return f"no sample came out: {made.src} holds no documents."
    return (
        f"no sample came out: all {counted(dropped, 'token')} were dropped, for they do not fill "
        f"one of {size:,}. Give a smaller --sample-size, or --keep-remainder or --packing "
        "best_fit, which fill up; and --overwrite, for the empty folder is there now."
    )


def _next(made: Made) -> list[str]:
    opened = f"penstock.open({json.dumps(made.dst)})"
    use = opened
    if made.sample_size is not None:
        tokens = f"penstock.Tokens({made.sample_size})"
        use = f"penstock.DataLoader({opened}, {tokens}, batch_size=8, shuffle=True)"
    dst, tokenizer = shlex.quote(made.dst), shlex.quote(made.tokenizer)
    return [f"look at it: penstock show {dst} 0 --decode {tokenizer}", f"use it: {use}"]
