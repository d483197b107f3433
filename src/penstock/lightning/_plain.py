"""`DataModule`: any source and any encoder, for people without a schema model."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.lightning._batches import BatchModule, SplitBatches
from penstock.lightning._options import given_splits
from penstock.loading import DataLoader, refuse_unknown
from penstock.schema import Strata

if TYPE_CHECKING:
    from collections.abc import Mapping


class DataModule(BatchModule):
    """Batches of sources: a `penstock.DataLoader` for each split, exact after a resume.

    Args:
        train: The source of training: anything that `penstock.DataLoader` takes.
        validate: The source of validation.
        test: The source of the test.
        predict: The source of prediction.
        encode: Decides what a batch is, as for `DataLoader`.
        batch_size: Records in a batch of one rank.
        shuffle: Whether, or how, training is shuffled; other splits keep their order.
        options: Further arguments of `DataLoader`, for all splits.

    >>> module = DataModule(
    ...     train=[{"n": number} for number in range(5)], encode={"n": "int64"}, batch_size=2
    ... )
    >>> sorted(n for batch in module.train_dataloader() for n in batch["n"].tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(  # noqa: PLR0913 (a source for each split)
        self,
        train: Any = None,
        validate: Any = None,
        test: Any = None,
        predict: Any = None,
        *,
        encode: Any = None,
        batch_size: Any = None,
        shuffle: Any = False,
        **options: Any,
    ) -> None:
        self._sources = given_splits(locals())
        super().__init__()
        if not self._sources:
            raise OptionError("at least one of train, validate, test and predict is needed.")
        if "epochs" in options:
            raise OptionError("epochs=: Trainer(max_epochs=…) says how many there are.")
        refuse_unknown(options.keys() - signature(DataLoader).parameters.keys(), DataLoader)
        self._options = {"encode": encode, "batch_size": batch_size, **options}
        self._shuffle = shuffle

    def _batches(self, strata: Strata, position: Mapping[str, Any] | None) -> SplitBatches | None:
        del position
        source = self._sources.get(strata)
        if source is None:
            return None
        shuffle = self._shuffle if strata is Strata.train else False
        encode = self._options["encode"]
        if hasattr(encode, "for_split"):
            encode = encode.for_split(strata)
        loader = DataLoader(source, **{**self._options, "encode": encode, "shuffle": shuffle})
        try:
            steps = len(loader)
        except TypeError:
            steps = None
        return SplitBatches(loader, steps, layout=steps)

    def end_epoch(self) -> None:
        """Bring the vocabularies of all ranks together, if the encoder has some."""
        if hasattr(self._options["encode"], "synchronize"):
            self._options["encode"].synchronize()
