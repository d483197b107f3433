"""Examples in docstrings run where they can write: each in an empty directory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _docstrings_run_in_an_empty_directory(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        place: Path = request.getfixturevalue("tmp_path")
        patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        patch.chdir(place)
        patch.setenv("PENSTOCK_CACHE", str(place / "cache"))
