"""A file system of fsspec as a hub for datasets has one: files with hashes, read by ranges."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile


class ToyHub(AbstractFileSystem):
    """Files of all instances, and the faults of the next calls."""

    protocol = "toyhub"
    files: ClassVar[dict[str, bytes]] = {}
    faults: ClassVar[list[Exception]] = []
    fetched: ClassVar[list[tuple[int, int]]] = []
    given: ClassVar[dict[str, Any]] = {}
    """The options of the last instance."""
    extra: ClassVar[int] = 0
    """Bytes that are given beyond those asked for."""
    size_is_known: ClassVar[bool] = True
    listed_outside: ClassVar[str] = ""
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        ToyHub.given = options

    @classmethod
    def reset(cls) -> None:
        cls.files.clear()
        cls.faults.clear()
        cls.fetched.clear()
        cls.extra, cls.size_is_known, cls.listed_outside = 0, True, ""

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002
        if self.faults:
            raise self.faults.pop(0)
        path = self._strip_protocol(path)
        found = {}
        for name, content in self.files.items():
            if name == path:
                found[name] = self._described(name, content)
            elif name.startswith(f"{path}/" if path else ""):
                first, slash, _rest = name[len(path) :].lstrip("/").partition("/")
                child = f"{path}/{first}".lstrip("/")
                folder = {"name": child, "size": 0, "type": "directory"}
                found[child] = folder if slash else self._described(child, content)
        if not found:
            raise FileNotFoundError(path)
        if self.listed_outside:
            found[self.listed_outside] = self._described(self.listed_outside, b"")
        return [*found.values()] if detail else [*found]

    def _described(self, name: str, content: bytes) -> dict[str, Any]:
        size = len(content) if self.size_is_known else None
        digest = hashlib.sha256(content).hexdigest()
        return {"name": name, "size": size, "type": "file", "blob_id": digest}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> _ToyFile:
        return _ToyFile(self, path, mode, **options)


class _ToyFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        if ToyHub.faults:
            raise ToyHub.faults.pop(0)
        ToyHub.fetched.append((start, end))
        return ToyHub.files[self.path][start : end + ToyHub.extra]
