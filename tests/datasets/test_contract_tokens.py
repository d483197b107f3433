"""Token folders, windows over them and views keep every promise of a source of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.datasets import TokensDataset
from tests.datasets.token_contract import Rows, TokenContract
from tests.datasets.token_folders import (
    Folder,
    as_data_forager,
    some_documents,
    write_best_fit,
    write_concat,
    write_documents,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import TokenSource
    from tests.servers.s3_server import S3Server


class FolderContract(TokenContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return write_concat(tmp_path / "data", some_documents(3, 30), 16, pad=True)

    @pytest.fixture
    def expected(self, folder: Folder) -> Rows:
        return folder.rows

    @pytest.fixture
    def open_source(self, folder: Folder) -> Callable[[], TokenSource]:
        return lambda: penstock.open(folder.path)  # type: ignore[return-value]


class TestSeveralFiles(FolderContract):
    pass


class TestOneFile(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return write_concat(tmp_path / "data", some_documents(1, 50), 8)


class TestDocuments(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return write_documents(tmp_path / "data", some_documents(2, 40))


class TestBestFit(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        rows = [[[n + 1] * (n % 7 + 1), [2, 3, 0]] for n in range(40)]
        return write_best_fit(tmp_path / "data", rows, 10)


class TestDataForager(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return as_data_forager(write_concat(tmp_path / "data", some_documents(2, 40), 16))


class TestDocumentsOfDataForager(FolderContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Folder:
        return as_data_forager(write_documents(tmp_path / "data", some_documents(2, 40)))


class TestWindows(FolderContract):
    ids_are_views = False

    @pytest.fixture
    def expected(self, folder: Folder) -> Rows:
        stream = folder.stream
        # The last sample is filled up, and so is the last window.
        begins = range(0, len(stream) - 20 + 9, 9)
        return [[*stream[at : at + 21], *[0] * 21][:21] for at in begins]

    @pytest.fixture
    def open_source(self, folder: Folder) -> Callable[[], TokenSource]:
        return lambda: penstock.open(folder.path).windows(20, 9, ahead=1)  # type: ignore[attr-defined]


@pytest.mark.s3
class TestRemote(FolderContract):
    start_methods = ("forkserver", "spawn")

    @pytest.fixture
    def url(self, folder: Folder, s3_server: S3Server, bucket: str) -> str:
        for path in folder.path.rglob("*"):
            if path.is_file():
                s3_server.put(bucket, f"data/{path.relative_to(folder.path)}", path.read_bytes())
        return f"s3://{bucket}/data"

    @pytest.fixture
    def open_source(self, url: str, s3_server: S3Server) -> Callable[[], TokenSource]:
        options = s3_server.storage_options
        return lambda: penstock.open(url, storage_options=options)  # type: ignore[return-value]

    def test_the_seeds_own_door_opens_it(
        self, url: str, s3_server: S3Server, expected: Rows
    ) -> None:
        options = s3_server.storage_options
        dataset = TokensDataset.create_from_index_on_filesystem(url, storage_options=options)
        assert dataset[[-1, 0]].tolist() == [expected[-1], expected[0]]

    def test_blocks_and_windows_give_the_same_tokens(
        self, source: TokenSource, folder: Folder
    ) -> None:
        blocked = source.by_blocks()
        assert blocked is not source
        assert blocked[:].tolist() == folder.rows
        assert blocked[3].tolist() == folder.rows[3]
        stream = folder.stream
        for rows in (
            source.windows(20, 9),
            blocked.windows(20, 9),
            source.windows(20, 9).by_blocks(),
        ):
            begins = range(0, len(stream) - 20 + 9, 9)
            expected = [[*stream[at : at + 20], *[0] * 20][:20] for at in begins]
            assert rows[:].tolist() == expected
            assert rows[[5, -1]].tolist() == [expected[5], expected[-1]]
            values, _ = rows.document_ends([5]) or ([], [])
            assert values[:-1].tolist() == [at - 45 for at in folder.borders if 45 < at < 65]
