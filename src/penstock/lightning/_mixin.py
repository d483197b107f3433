"""`SchemaMixin`: a LightningModule that has a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.lightning._batch_module import BatchModule
from penstock.lightning._lightning import pl
from penstock.lightning._trainer_ranks import ranks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.schema import SchemaModel

_KEY = "penstock_schema"


def _of_schema(name: str) -> property:
    """Return an attribute that is that of the schema."""
    return property(lambda self: getattr(self.schema, name))


class SchemaMixin:
    """Gives a LightningModule the schema in its attribute `schema`, a `SchemaModel`.

    Data modules read the schema from it. Checkpoints hold the tree, and the vocabularies and
    statistics of all ranks, which are brought together when training begins, at the end of each
    epoch, and when it ends. A checkpoint of another tree is refused, unless the module's
    or the schema's `strict_loading` is False.

    >>> import lightning.pytorch as pl
    >>> from penstock.schema import Number, SchemaModel
    >>> class Model(SchemaMixin, pl.LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.schema = SchemaModel(Number("price"), batch_size=32)
    >>> Model().batch_size
    32
    """

    schema: SchemaModel

    hyperparameters = _of_schema("hyperparameters")
    interprocess_encoding_context = _of_schema("interprocess_encoding_context")
    statistics = _of_schema("statistics")
    select = _of_schema("select")
    update = _of_schema("update")
    extend = _of_schema("extend")
    delete = _of_schema("delete")
    override = _of_schema("override")
    reset = _of_schema("reset")
    encode = _of_schema("encode")
    write = _of_schema("write")

    @property
    def batch_size(self) -> int:
        """Observations in a batch."""
        return int(self.schema.batch_size)

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        self.schema.batch_size = size

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what the schema has learnt; Lightning calls it on every rank."""
        super().on_save_checkpoint(checkpoint)  # type: ignore[misc]
        checkpoint[_KEY] = self.schema.gathered_state()

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Hold what the schema had learnt."""
        super().on_load_checkpoint(checkpoint)  # type: ignore[misc]
        if not self.strict_loading:  # type: ignore[attr-defined]
            self.schema.strict_loading = False
        if _KEY in checkpoint:
            # What one rank had not shared yet is to be counted on that rank alone.
            self.schema.configure_distributed(*ranks_of(self._trainer)[:2])  # type: ignore[attr-defined]
            self.schema.load_state_dict(checkpoint[_KEY])

    def configure_callbacks(self) -> list[Any]:
        """Return what brings the vocabularies of all ranks together."""
        found = super().configure_callbacks()  # type: ignore[misc]
        trainer = getattr(self, "_trainer", None)
        if any(isinstance(one, Synchronizer) for one in getattr(trainer, "callbacks", ())):
            return [*found]  # Of an earlier run: Lightning would say that it is replaced.
        return [*found, Synchronizer()]


class Synchronizer(pl.Callback):
    """Brings the vocabularies and statistics of all ranks together, for a model with a schema."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.schema.synchronize()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not isinstance(trainer.datamodule, BatchModule):  # It does so itself.
            pl_module.schema.synchronize()

    on_fit_end = on_train_epoch_end  # Resumed behind the last step, a run has no epoch to end.
