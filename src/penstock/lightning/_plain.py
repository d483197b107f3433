"""`DataModule`: any source and any encoder, for people without a schema model."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.lightning._batch_module import BatchModule
from penstock.lightning._batches import SplitBatches, SplitFacts
from penstock.lightning._options import given_splits, of_split
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
        options: Further arguments of `DataLoader`. `weights`, `balance` and `skip` hold for
            training, others for all splits; a dict by split gives each its own.

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
        given = given_splits(locals())
        super().__init__()
        self._given = given
        if not self._given:
            raise OptionError("at least one of train, validate, test and predict is needed.")
        if "epochs" in options:
            raise OptionError("epochs=: Trainer(max_epochs=…) says how many there are.")
        unknown = options.keys() - signature(DataLoader).parameters.keys()
        for name in unknown:
            if near := [split.value for split in Strata if split.startswith(name)]:
                raise TypeError(f"DataModule has no argument {name!r}. Did you mean {near[0]!r}?")
        refuse_unknown(unknown, DataLoader)
        self._encode = encode
        self._options = {"batch_size": batch_size, "shuffle": shuffle, **options}

    def _batches(self, strata: Strata, position: Mapping[str, Any] | None) -> SplitBatches | None:
        del position
        source = self._given.get(strata)
        if source is None:
            return None
        encode = self._encode
        if hasattr(encode, "for_split"):
            encode = encode.for_split(strata)
        if hasattr(encode, "syncs_early"):
            encode.syncs_early = True  # All ranks have as many batches.
        own = {
            name: found
            for name, value in self._options.items()
            if (found := of_split(name, value, strata)) is not None
        }
        loader = DataLoader(source, encode, **own)
        try:
            steps = len(loader)
        except TypeError:
            steps = None
        are_alike = not own.get("shuffle") and own.keys().isdisjoint(("weights", "balance"))
        return SplitBatches(loader, SplitFacts(steps=steps, layout=steps, are_alike=are_alike))

    def _learner(self) -> Any:
        return self._encode
