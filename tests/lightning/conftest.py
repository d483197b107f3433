from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def same_seed() -> None:
    """Let data modules without a seed of their own draw the same in every run."""
    torch.manual_seed(1)
