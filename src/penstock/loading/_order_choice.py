"""Which order `shuffle` means for a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.datasets import origins_of
from penstock.errors import OptionError
from penstock.loading._options import check_choice
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.datasets import Source
    from penstock.order._order import Kind


def chosen_order(
    source: Source,
    shuffle: bool | Literal["full", "block"],  # noqa: FBT001 (the loader's own argument)
    *,
    through_columns: bool = False,
) -> tuple[Kind, str]:
    """Return the kind of order that `shuffle` asks for, and why.

    A source that can only be read in order is shuffled through columns, where it may have some.
    """
    if shuffle is False:
        return "sequential", "shuffle=False"
    check_choice("shuffle", shuffle, (True, False, "full", "block"))
    if not through_columns:
        refuse_shuffled_gzip(source)
    if shuffle is not True:
        return shuffle, f"shuffle={shuffle!r}"
    if first_gzip(source) is not None:
        return "full", "gzip is decoded once, into columns"
    return natural_shuffle(source)


def refuse_shuffled_gzip(source: Source) -> None:
    """Raise for a source that can only be read in order and is to be shuffled."""
    path = first_gzip(source)
    if path is not None:
        raise OptionError(
            f"{path} is compressed with gzip, which can only be read from its beginning, so its "
            "records cannot be shuffled as they are. Name the fields to encode, which are then "
            "decoded once, into columns (materialize='auto' or True); or write the records with "
            f"small zstd frames: penstock convert {path} DST; or read them in order: shuffle=False."
        )


def natural_shuffle(source: Source) -> tuple[Kind, str]:
    """Return the shuffle that a source is read well with, and why; "sequential" for none."""
    if first_gzip(source) is not None:
        return "sequential", "gzip can only be read from its beginning"
    if lies_remote(source):
        return "block", "remote data is read by blocks, each once"
    for origin in bare_origins(source):
        if origin.reads_blocks:
            return "block", origin.reads_blocks
    return "full", "any record can be read by itself here"


def lies_remote(source: Source) -> bool:
    """Whether some of its files are not on this machine."""
    return any(map(is_remote, source.files))


def first_gzip(source: Source) -> str | None:
    """Return a file that can only be read from its beginning, if there is one."""
    return first_stream(source, "gzip")


def first_stream(source: Source, compression: str = "") -> str | None:
    """Return a file in which a record costs what lies before it, if there is one."""
    for origin in bare_origins(source):
        for file, how in origin.stream_files.items():
            if compression in ("", how):
                return origin.files[file]
    return None


def bare_origins(source: Source) -> Iterable[Source]:
    """Return the sources that hold the records of a view, whatever columns there are of them."""
    return (origin._bare for origin in origins_of(source))  # noqa: SLF001 (of a source)
