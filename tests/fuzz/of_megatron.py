"""Pairs of Megatron-LM files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.datasets.megatron_files import write_megatron
from tests.fuzz._rows import TokenRows

if TYPE_CHECKING:
    from pathlib import Path

_DOCUMENTS = [[[1, 2, 3], [4, 5]], [[6]], [[], [7, 8, 9, 10]], [[11, 12], [], [13]], [[14] * 6]]


class Megatron(TokenRows):
    """Sequences of many lengths, sequences of one, and modes behind them."""

    name = "megatron"
    rounds = (100, 15_000)

    def make(self, folder: Path) -> None:
        for name in ("many", "even", "modes"):
            (folder / name).mkdir()
        write_megatron(folder / "many" / "corpus", _DOCUMENTS)
        write_megatron(folder / "even" / "corpus", [[[n] * 6] for n in range(9)], "int32")
        write_megatron(folder / "modes" / "corpus", _DOCUMENTS, "uint8", has_modes=True)

    def targets(self, files: list[str]) -> list[str]:
        return [*files, *(name for name in files * 2 if name.endswith(".idx"))]

    def place(self, folder: Path, damaged: str) -> Path:
        return super().place(folder, damaged) / "corpus"
