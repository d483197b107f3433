"""JSON Lines keep every promise of a source: plain and compressed, local and remote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.jsonl import JsonlDir
from tests.datasets.sample import Record, sample_records
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source
    from tests.servers.s3_server import S3Server


class JsonlContract(SourceContract):
    has_raw = True
    extension = ".jsonl"

    @pytest.fixture
    def expected(self) -> list[Record]:
        return sample_records(100)

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        with JsonlDir(tmp_path / "data").writer_sync(self.extension, 30, frame_bytes=700) as writer:
            writer.write_many(expected)
        return lambda: penstock.open(tmp_path / "data")


class TestPlain(JsonlContract):
    pass


class TestZstd(JsonlContract):
    extension = ".jsonl.zst"


class TestArray(JsonlContract):
    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        (tmp_path / "data").mkdir()
        for start in range(0, len(expected), 30):
            text = json.dumps(expected[start : start + 30], indent=start // 30 or None)
            (tmp_path / "data" / f"{start}.json").write_text(text)
        return lambda: penstock.open(tmp_path / "data")


class RemoteContract(JsonlContract):
    start_methods = ("forkserver", "spawn")

    @pytest.fixture
    def open_source(
        self, s3_server: S3Server, bucket: str, expected: list[Record]
    ) -> Callable[[], Source]:
        options, url = s3_server.storage_options, f"s3://{bucket}/data"
        with JsonlDir(url, options).writer_sync(self.extension, 30, frame_bytes=700) as writer:
            writer.write_many(expected)
        return lambda: penstock.open(url, storage_options=options)


@pytest.mark.s3
class TestRemotePlain(RemoteContract):
    pass


@pytest.mark.s3
class TestRemoteZstd(RemoteContract):
    extension = ".jsonl.zst"
