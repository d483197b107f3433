"""Which order `shuffle` means for a source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.datasets import bare_origins
from penstock.errors import OptionError
from penstock.jsonl import SEQUENTIAL, compression_of
from penstock.loading._options import check_choice
from penstock.order import ORDERS
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.datasets import Source
    from penstock.order import Cursor


@dataclass(frozen=True)
class OrderChoice:
    """Which order a run has; the base of choices other than by `shuffle`."""

    kind: str
    why: str
    own: Mapping[str, Any] = field(default_factory=dict)
    """What the state of a run that begins has of it: see `Cursor.own`."""

    is_by_field = False
    """Whether the order rests on the values of a field."""

    def table(self, point: Cursor, source: Source) -> Any:  # noqa: ANN401 (of the kind)
        """Return what the order of a point needs, apart from blocks; None for nothing."""
        return None

    def as_it_was(self, point: Cursor, source: Source) -> Source:
        """Return a source with the record numbers that it had at a point, where they moved."""
        return source

    def continued(self, point: Cursor, source: Source, changed: str | None) -> Mapping[str, Any]:
        """Return what the state of a run has of its order from now on, or refuse to go on.

        `changed` is what `on_changed` says where the source is the same, None where it is another.
        """
        self.check_kind(point)
        return {}

    def check_kind(self, point: Cursor) -> None:
        """Refuse to go on with an order that has parameters of its own, or without it."""
        if point.kind != self.kind and (point.own or self.own):
            raise OptionError(
                f"the state is of {point.kind} order, and this loader has {self.kind} order: give "
                "it the source, the weights or the balance that the state was saved with."
            )


def chosen_order(
    source: Source,
    shuffle: bool | str,  # noqa: FBT001 (the loader's own argument)
    *,
    through_columns: bool = False,
) -> tuple[str, str]:
    """Return the kind of order that `shuffle` asks for, and why.

    A source that can only be read in order is shuffled through columns, where it may have some.
    """
    if shuffle is False:
        return "sequential", "shuffle=False"
    check_shuffle(shuffle)
    if not through_columns:
        refuse_shuffled_stream(source)
    if isinstance(shuffle, str):
        return shuffle, f"shuffle={shuffle!r}"
    path = first_sequential(source)
    if path is not None:
        return "full", f"{compression_of(path)} is decoded once, into columns"
    if lies_remote(source):
        return "block", "remote data is read by blocks, each once"
    for origin in bare_origins(source):
        if origin.reads_blocks:
            return "block", origin.reads_blocks
    return "full", "any record can be read by itself here"


def check_shuffle(shuffle: bool | str) -> None:  # noqa: FBT001 (the loader's own argument)
    shuffled = [name for name, row in ORDERS.items() if name != "sequential" and not row.own]
    check_choice("shuffle", shuffle, (True, False, *shuffled))


def refuse_shuffled_stream(source: Source) -> None:
    """Raise for a source that can only be read in order and is to be shuffled."""
    path = first_sequential(source)
    if path is not None:
        raise OptionError(
            f"{path} is compressed with {compression_of(path)}, which can only be read from its "
            "beginning, so its records cannot be shuffled as they are. Name the fields to "
            "encode, which are then decoded once, into columns (materialize='auto' or True); or "
            f"write the records with small zstd frames: penstock convert {path} DST; or read them "
            "in order: shuffle=False."
        )


def lies_remote(source: Source) -> bool:
    """Whether some of its files are not on this machine."""
    return any(map(is_remote, source.files))


def first_sequential(source: Source) -> str | None:
    """Return a file that can only be read from its beginning, if there is one."""
    return first_stream(source, SEQUENTIAL)


def first_stream(source: Source, compressions: Collection[str] = ()) -> str | None:
    """Return a file in which a record costs what lies before it, if there is one."""
    for origin in bare_origins(source):
        for file, how in origin.stream_files.items():
            if not compressions or how in compressions:
                return origin.files[file]
    return None
