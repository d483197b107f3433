"""What is wrong with tokens, or with the samples of an MDS folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._units import counted
from penstock.cli._verb import FINDINGS, FINE
from penstock.datasets import is_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.cli.check._parts import Finding
    from penstock.datasets import Source, TokenSource

_STEP_TOKENS = 1 << 22
_STEP = 1024
_SHOWN = 20


def check_source(path: str, source: Source, leftovers: Sequence[Finding], *, as_json: bool) -> int:
    """Read everything; report samples whose documents do not end where the index says so."""
    meta = source.index_meta
    eos = None if meta is None or meta.tokens is None else meta.tokens.eos
    findings = [*map(str, leftovers)]
    tokens = 0
    size = getattr(source, "sample_size", None)
    step = max(1, _STEP_TOKENS // size) if size else _STEP
    with Progress(len(source), unit="samples") as progress:
        for start in range(0, len(source), step):
            ids = np.arange(start, min(start + step, len(source)))
            rows = source.read(ids)
            if is_tokens(source):
                tokens += int(source.lengths(ids).sum())
                findings += _wrong_ends(source, ids, rows, eos)
            progress.add(len(ids))
    if as_json:
        document = {
            "path": path,
            "files": len(source.files),
            "records": len(source),
            "tokens": tokens if is_tokens(source) else None,
            "findings": len(findings),
            "shown": findings[:_SHOWN],
            "errors": [],
        }
        echo_json(document)
        return FINDINGS if findings else FINE
    for one in findings[:_SHOWN]:
        echo(one)
    seen = f"{path}: {counted(len(source.files), 'file')}, {counted(len(source), 'sample')}"
    seen += f", {counted(tokens, 'token')}" if is_tokens(source) else ""
    told = counted(len(findings), "finding") if findings else "nothing wrong"
    hidden = f" ({len(findings) - _SHOWN:,} not shown)" if len(findings) > _SHOWN else ""
    echo(f"{seen}: {told}{hidden}")
    return FINDINGS if findings else FINE


def _wrong_ends(
    source: TokenSource, ids: NDArray[np.int64], rows: NDArray[np.integer], eos: int | None
) -> list[str]:
    """Return what is wrong with document borders: each stands behind the token that ends it.

    What ends where its sample does may go on in the next one.
    """
    found = source.document_ends(ids)
    if found is None or eos is None or source.sample_size is None:
        return []
    ends, offsets = found
    of_row = np.repeat(np.arange(len(ids)), np.diff(offsets))
    is_wrong = (ends < 1) | (ends > source.sample_size)
    inside = ~is_wrong & (ends < source.sample_size)
    is_wrong[inside] = rows[of_row[inside], ends[inside] - 1] != eos
    return [
        f"sample {ids[of_row[at]]:,}: the index says that a document ends at token {ends[at]:,}, "
        f"and no {eos} stands there"
        for at in np.flatnonzero(is_wrong).tolist()
    ]
