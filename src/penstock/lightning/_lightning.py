"""Lightning and torch, behind the error that names the extra."""

from penstock._lazy import require

require("lightning", extra="lightning", purpose="penstock.lightning")
import lightning.pytorch as pl  # noqa: E402
from lightning.pytorch.utilities.combined_loader import CombinedLoader  # noqa: E402
from torch.utils.data import IterableDataset  # noqa: E402

__all__ = ["CombinedLoader", "IterableDataset", "pl"]
