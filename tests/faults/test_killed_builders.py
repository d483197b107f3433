"""A builder that is killed leaves nothing that the next run of the same call does not remove."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults import killed_builder_programs
from tests.faults.child import run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("builder", ["open", "update", "materialize"])
def test_a_builder_killed_at_any_step_leaves_no_hidden_folder_after_a_later_run(
    tmp_path: Path, builder: str
) -> None:
    assert run(killed_builder_programs.leftovers, str(tmp_path), builder) == []
