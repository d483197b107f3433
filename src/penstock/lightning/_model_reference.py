"""The model of a data module: read while it lives, and as it was seen last when it is gone."""

from __future__ import annotations

import warnings
import weakref
from copy import copy
from typing import TYPE_CHECKING, Any

from penstock.schema import Schema, Tree

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEEDED = ("hyperparameters", "batch_size", "interprocess_encoding_context")


class ModelReference:
    """A weak reference to a model, and what it was when it was last seen; pickles without it."""

    def __init__(self, model: object) -> None:
        missing = [name for name in _NEEDED if not hasattr(model, name)]
        if missing:
            raise TypeError(
                f"model={model!r:.80} has no {', '.join(missing)}: give a SchemaModel, or a "
                "LightningModule with SchemaMixin whose attribute schema is a SchemaModel."
            )
        if not isinstance(model.hyperparameters, Tree):  # type: ignore[attr-defined]
            raise TypeError(
                f"model.hyperparameters is a {type(model.hyperparameters).__qualname__}, and a "  # type: ignore[attr-defined]
                "tree of penstock.schema is needed: keep the fields in a SchemaModel."
            )
        self._model: weakref.ref[Any] | None = weakref.ref(model)
        self._seen: dict[str, Any] = {}
        self.look()

    def look(self) -> dict[str, Any]:
        """Return what the model is now, or was when it was last seen."""
        model = None if self._model is None else self._model()
        if model is not None:
            self._seen = {name: getattr(model, name) for name in _NEEDED}
            schema = model if isinstance(model, Schema) else getattr(model, "schema", None)
            # A copy: it shares what is learnt, keeps its tree, and does not keep a model alive.
            self._seen["schema"] = copy(schema) if isinstance(schema, Schema) else None
        return self._seen

    def warn_of(self, trained: object) -> None:
        """Warn where a trainer has a model with another schema than the one that is read."""
        model = None if self._model is None else self._model()
        if model is None or trained is model or not all(hasattr(trained, one) for one in _NEEDED):
            return
        if trained.hyperparameters is not model.hyperparameters:  # type: ignore[attr-defined]
            warnings.warn(
                f"the trainer has another {type(trained).__qualname__} than the data module was "
                "made with: batches follow the schema of the module's model, which also learns "
                "the labels. Make the data module with the model that is trained.",
                stacklevel=2,
            )

    def hold(self, name: str, value: object) -> None:
        """Let go of the model, and hold another value than its own."""
        self._seen = {**self.look(), name: value}
        self._model = None
        if name != "batch_size":
            self._seen["schema"] = None

    def schema(self) -> Schema:
        """Return a schema that shares what the model has learnt."""
        seen = self.look()
        if seen["schema"] is not None:
            return seen["schema"]  # type: ignore[no-any-return]
        return Schema.of(seen["hyperparameters"], seen["interprocess_encoding_context"])

    @property
    def context(self) -> Mapping[Any, Any]:
        return self.look()["interprocess_encoding_context"]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {"_model": None, "_seen": self.look()}
