"""Fields that the names of folders hold, as Hive writes them: `year=2024/month=01/a.parquet`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    Values = dict[str, int | str | None]

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def partitions_of(paths: Sequence[str]) -> tuple[pa.Schema, list[Values]]:
    """Return the fields in the names of folders, and their values for each file.

    `paths` are relative to what was opened. A field is int64 if all its values are integers, and
    else a string.

    >>> schema, values = partitions_of(
    ...     ["year=2024/city=K%C3%B6ln/a.parquet", "year=2025/b.parquet"]
    ... )
    >>> schema.types, values
    ([DataType(int64), DataType(string)], [{'year': 2024, 'city': 'Köln'}, {'year': 2025}])
    """
    texts = [_texts(path) for path in paths]
    names = dict.fromkeys(name for one in texts for name in one)
    found: list[Values] = [{} for _ in texts]
    types: dict[str, pa.DataType] = {}
    for name in names:
        own = [one.get(name) for one in texts]
        is_integer = all(text is None or _INTEGER.fullmatch(text) for text in own)
        types[name] = pa.int64() if is_integer and any(own) else pa.string()
        for values, one in zip(found, texts, strict=True):
            if name in one:
                text = one[name]
                values[name] = int(text) if text and types[name] == pa.int64() else text
    return pa.schema(types), found


def _texts(path: str) -> dict[str, str | None]:
    """Return the texts behind the names in a path, None for null."""
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, sign, text = folder.partition("=")
        if not (name and sign):
            continue
        try:
            name, text = (unquote(part, errors="strict") for part in (name, text))
            f"{name}{text}".encode()
        except UnicodeError:
            raise SchemaMismatchError(
                f"{path}: the name of the folder {folder!r} is not UTF-8. Rename it.", path=path
            ) from None
        if name in found:
            raise SchemaMismatchError(
                f"{path}: two folders give a value to {name!r}. Rename one of them.",
                path=path,
                field=name,
            )
        found[name] = None if text == _NULL else text
    return found
