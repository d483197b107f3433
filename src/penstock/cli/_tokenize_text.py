"""What `penstock tokenize` tells: while it works, and when it is done."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli._terminal import Progress
from penstock.cli._units import counted

if TYPE_CHECKING:
    from penstock.index import TokenReport


class TokenProgress(Progress):
    """Bytes that were read, with documents and tokens a second beside them."""

    def __init__(self, total: int, *, every: float = 30.0) -> None:
        super().__init__(total, every=every)
        self._documents = self._tokens = 0

    def count(self, documents: int, tokens: int) -> None:
        """Note what was tokenised."""
        self._documents += documents
        self._tokens += tokens
        if self._bar is not None:
            self._bar.set_postfix_str(self._told(), refresh=False)

    def _line(self) -> str:
        return f"{super()._line()}; {self._told()}"

    def _told(self) -> str:
        return _rates(self._documents, self._tokens, time.monotonic() - self._start)


def _rates(documents: int, tokens: int, seconds: float) -> str:
    seconds = max(1e-9, seconds)
    return f"{documents / seconds:,.0f} documents/s, {tokens / seconds:,.0f} tokens/s"


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
    rates = _rates(report.documents, report.tokens, report.seconds)
    lines = [
        f"{made.dst}: {documents}, {tokens} ({made.dtype}) in {samples}",
        f"  {counted(made.files, 'file')}, {report.seconds:.1f} s: {rates}",
    ]
    if report.padding:
        share = _share(report.padding, report.tokens + report.padding)
        lines.append(f"  padding: {share} of all tokens")
    if report.dropped:
        share = _share(report.dropped, report.tokens + report.dropped)
        lines.append(f"  dropped behind the last full sample: {share} of all tokens")
    if report.bad_documents:
        lines.append(f"  {counted(report.bad_documents, 'line')} without a text left out")
    return "\n".join([*lines, *_next(made)])


def _next(made: Made) -> list[str]:
    opened = f"penstock.open({json.dumps(made.dst)})"
    use = opened
    if made.sample_size is not None:
        tokens = f"penstock.Tokens({made.sample_size})"
        use = f"penstock.DataLoader({opened}, {tokens}, batch_size=8, shuffle=True)"
    dst, tokenizer = shlex.quote(made.dst), shlex.quote(made.tokenizer)
    return [f"look at it: penstock show {dst} 0 --decode {tokenizer}", f"use it: {use}"]
