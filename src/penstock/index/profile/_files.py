"""The files of a profile: `profile.json` for readers, and the state that an update continues."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec

from penstock.errors import CorruptFileError, CorruptIndexError
from penstock.index._names import PROFILE, PROFILE_STATE
from penstock.storage import join, read_metadata, readable_metadata

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index._sample_index import SampleIndex
    from penstock.index.profile._profile import Profile


def write_profile(folder: Path, profile: Profile) -> None:
    """Write both files of a profile."""
    written = {
        PROFILE: profile_text(profile.document()).encode(),
        PROFILE_STATE: profile.to_bytes(),
    }
    remedy = "Profile records with fewer columns, or index without a profile."
    for name, data in written.items():
        (folder / name).write_bytes(readable_metadata(data, name, remedy))


def profile_text(document: dict[str, Any]) -> str:
    """Return a profile as the text of `profile.json`: each field on a line of its own."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            inner = ",\n  ".join(_json(item) for item in value)
            lines.append(f" {_json(name)}: [\n  {inner}\n ]")
        else:
            lines.append(f" {_json(name)}: {_json(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_profile(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the content of `profile.json` in a local folder; None if there is none.

    >>> read_profile("no/such/index") is None
    True
    """
    path = join(os.fspath(folder), PROFILE)
    try:
        return decode_profile(read_metadata(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (CorruptFileError, ValueError, RecursionError) as why:
        raise _damaged(path, why) from None


def decode_profile(text: bytes) -> dict[str, Any]:
    """Return the document of a profile; raise `ValueError` for another text."""
    document: dict[str, Any] = json.loads(text)
    try:
        msgspec.convert(document, _Document)
    except msgspec.ValidationError as why:
        raise ValueError(f"it is no profile: {why}") from None
    return document


Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Scalar: TypeAlias = int | float | str | bool | None
"""The structures below have the fields that readers of a profile rely on; see docs/formats.md."""


class _Quantiles(msgspec.Struct):
    p50: Scalar


class _LengthQuantiles(msgspec.Struct):
    p50: int | float


class _Bars(msgspec.Struct):
    counts: list[Count]


class _Lengths(msgspec.Struct):
    min: int | float
    max: int | float
    quantiles: _LengthQuantiles
    bars: _Bars


class _TypeFacts(msgspec.Struct):
    count: Count
    min: Scalar = None
    max: Scalar = None
    true: Count = 0
    quantiles: _Quantiles | msgspec.UnsetType = msgspec.UNSET
    bars: _Bars | msgspec.UnsetType = msgspec.UNSET
    lengths: _Lengths | msgspec.UnsetType = msgspec.UNSET


class _FieldFacts(msgspec.Struct):
    path: str
    count: Count
    nulls: Count
    missing: Count
    types: dict[str, _TypeFacts]
    distinct: Count = 0
    distinct_is_exact: bool = False
    min: Scalar = None
    max: Scalar = None
    examples: list[Any] = []


class _Drift(msgspec.Struct):
    level: Literal["warning", "note"]
    path: str
    text: str


class _Document(msgspec.Struct):
    format: Literal["penstock-profile"]
    records: Count
    record_types: dict[str, _TypeFacts]
    fields: list[_FieldFacts]
    drift: list[_Drift]


def old_profile(old: SampleIndex) -> Profile:
    """Return the profile of an index, to continue it with an update."""
    from penstock.index.profile._profile import Profile  # noqa: PLC0415 (numpy, only for updates)

    folder = "" if old.origin is None else old.origin.folder
    path = join(folder, PROFILE_STATE)
    try:
        profile = Profile.from_bytes(read_metadata(path))
    except (OSError, ValueError, RecursionError) as why:
        raise _damaged(path, why) from None
    if profile.records != len(old):
        raise _damaged(path, f"it is of {profile.records:,} records, the index has {len(old):,}")
    return profile


def _damaged(path: str, why: object) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path} is damaged ({why}). Build the index again: penstock index PATH --overwrite "
        "--profile",
        path=path,
    )
