"""`SchemaModel`: what data modules need of a model, without a network."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.errors import CorruptFileError, OptionError, PenstockError
from penstock.schema._documents import document_of, node_of
from penstock.schema._nodes import check_count
from penstock.schema._schema import Schema
from penstock.storage import fetch_metadata, locate, open_for_writing, readable_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.schema._nodes import Node
    from penstock.schema._tree import Address
    from penstock.storage import StorageOptions

T = TypeVar("T")
S = TypeVar("S", bound=Schema)
_VERSION = 1


class SchemaModel(Schema):
    """A schema with a batch size: the model of a data module, for networks of your own.

    Args:
        fields: The nodes below the root.
        batch_size: Observations in a batch.
        name: The first part of every address.
        strict: As for `Schema`.

    >>> from penstock.schema import Number
    >>> model = SchemaModel(Number("price"), batch_size=32)
    >>> model.save("prices.json")
    >>> SchemaModel.load("prices.json").hyperparameters == model.hyperparameters
    True
    """

    def __init__(
        self, *fields: Node, batch_size: int, name: str = "record", strict: bool = False
    ) -> None:
        check_count("SchemaModel", "batch_size", batch_size)
        super().__init__(*fields, name=name, strict=strict)
        self.batch_size = batch_size

    def write(self, predictions: Mapping[Address, dict[str, Any]]) -> Mapping[Address, Any]:
        """Return predictions as they are: rows by address and key."""
        return predictions

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tree, the batch size and all that was learnt to a JSON file."""
        document = {
            "version": _VERSION,
            "batch_size": self.batch_size,
            **({"strict": True} if self.strict else {}),
            "root": document_of(self.hyperparameters.root),
            "state": self._learnt.state_dict(),
        }
        # Labels may be integers of any size, or texts that are no UTF-8.
        data = json.dumps(document, indent=1).encode()
        store, name = locate(path)
        with open_for_writing(store, name.rpartition("/")[0], name) as file:
            file.write(readable_metadata(data, name, "Give the leaves smaller vocabularies."))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the model of a file that `save` wrote."""
        document = _read(os.fspath(path))
        return _made(path, lambda: _filled(document, cls, batch_size=document["batch_size"]))


def load_schema(path: str | os.PathLike[str], options: StorageOptions | None = None) -> Schema:
    """Return the schema of a file.

    It is one of `penstock profile PATH --as schema --json`, or of `SchemaModel.save`, with all that
    was learnt.
    """
    document = _read(os.fspath(path), options)
    return _made(path, lambda: _filled(document, Schema))


def _read(path: str, options: StorageOptions | None = None) -> dict[str, Any]:
    data = fetch_metadata(*locate(path, options))
    document = _made(path, lambda: json.loads(data))
    version = _made(path, lambda: document.get("version", _VERSION))
    if version != _VERSION:
        raise OptionError(
            f"{path} has version {version}, and this release knows {_VERSION}. It was written by a "
            "newer Penstock; install that one or a later one."
        )
    return dict(document)


def _made(path: str | os.PathLike[str], make: Callable[[], T]) -> T:
    """Return what a function makes of a document, or say that it is none."""
    try:
        return make()
    except PenstockError:
        raise
    except (
        LookupError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as why:
        raise CorruptFileError(
            f"{path} is no saved schema: {why!r}.", remedy="Save it again.", path=os.fspath(path)
        ) from None


def _filled(document: Mapping[str, Any], kind: type[S], **options: Any) -> S:
    root = document.get("root", {"name": "record", **document})
    options["strict"] = document.get("strict", False)
    schema = kind(*map(node_of, root["fields"]), name=root["name"], **options)
    if "state" in document:
        schema.load_state_dict(document["state"])
    return schema
