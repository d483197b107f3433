"""Where writers work, and what they left there, seen without Penstock."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server

_SHARD = re.compile(r"part-(\d{5,})\.jsonl(\.zstd?)?")


@dataclass(frozen=True)
class Ground:
    """A directory of one test, local or in a bucket."""

    path: str
    """As a user gives it to `JsonlDir`."""
    storage_options: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of all files."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        raise NotImplementedError

    def unfinished_uploads(self) -> list[tuple[str, str]]:
        """Return the uploads that were begun and not ended."""
        return []

    def visible(self) -> dict[str, bytes]:
        """Return what readers see."""
        return {name: self.read(name) for name in self.names() if name[0] not in "._"}

    def hidden(self) -> list[str]:
        """Return the names that readers pass over."""
        return sorted(name for name in self.names() if name[0] in "._")

    @property
    def is_remote(self) -> bool:
        return self.path.startswith("s3://")

    def at(self, name: str) -> str:
        return f"{self.path}/{name}"


@dataclass(frozen=True)
class LocalGround(Ground):
    def names(self) -> list[str]:
        root = Path(self.path)
        return [path.name for path in root.iterdir()] if root.exists() else []

    def read(self, name: str) -> bytes:
        return Path(self.path, name).read_bytes()


@dataclass(frozen=True)
class S3Ground(Ground):
    server: S3Server = None  # type: ignore[assignment]
    bucket: str = ""

    @property
    def _prefix(self) -> str:
        return self.path.removeprefix(f"s3://{self.bucket}/") + "/"

    def names(self) -> list[str]:
        keys = self.server.list_keys(self.bucket, self._prefix)
        return [key.removeprefix(self._prefix) for key in keys]

    def read(self, name: str) -> bytes:
        return self.server.get(self.bucket, self._prefix + name)

    def unfinished_uploads(self) -> list[tuple[str, str]]:
        return self.server.multipart_uploads(self.bucket)


def records_in(name: str, data: bytes) -> list[Any]:
    """Return the records of a file, and fail if it is not whole."""
    if name.endswith((".zst", ".zstd")):
        with zstandard.ZstdDecompressor().stream_reader(
            io.BytesIO(data), read_across_frames=True
        ) as reader:
            data = reader.read()
    assert data.endswith(b"\n"), f"{name} ends within a line"
    return [json.loads(line) for line in data.splitlines()]


def shard_number(name: str) -> int:
    found = _SHARD.fullmatch(name)
    assert found, f"{name} is not a shard"
    return int(found[1])


def shards_in(files: dict[str, bytes]) -> list[tuple[str, list[Any]]]:
    """Return the records of each shard, in the order of their numbers."""
    names = sorted(files, key=lambda name: (shard_number(name), name))
    return [(name, records_in(name, files[name])) for name in names]
