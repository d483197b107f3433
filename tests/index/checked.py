"""What the tests of checked indexes share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.index import (
    BuildOptions,
    LineScanner,
    list_files,
    make_index,
    read_bad_lines,
)

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index import Mode


def build(folder: Path, mode: Mode = "new", **options: Any) -> None:
    """Index a folder, with options that only rooms know."""
    options = {"num_workers": 0, "progress": False} | options
    make_index(list_files(folder), LineScanner(), mode, build=BuildOptions(**options))


def rows_of(folder: Path) -> list[list[int]]:
    data = np.fromfile(folder / "index" / "sample_locations.bin", "<u8")
    return data.reshape(-1, 3).tolist()  # type: ignore[no-any-return]


def bad_of(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return file, line, offset and bytes of what was set aside."""
    return [(b.file, b.line, b.offset, b.bytes) for b in read_bad_lines(folder / "index")]


def meta_of(folder: Path) -> Any:
    return json.loads((folder / "index" / "meta.json").read_text())


def profile_of(folder: Path) -> Any:
    return json.loads((folder / "index" / "profile.json").read_text())


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
