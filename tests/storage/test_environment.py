from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import penstock
from penstock.storage import cache_directory, new_remote_path
from penstock.storage._environment import endpoint_is_plain_http, secrets_in_environment


def test_only_this_module_reads_the_environment() -> None:
    package = Path(penstock.__file__).parent
    readers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"))
        or (isinstance(node, ast.ImportFrom) and node.module == "os")
    }
    assert readers == {"storage/_environment.py"}


def test_the_cache_goes_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PENSTOCK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
    assert cache_directory() == tmp_path / "home" / usual / "penstock"
    if sys.platform != "darwin":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_directory() == tmp_path / "xdg" / "penstock"
    monkeypatch.setenv("PENSTOCK_CACHE", "~/mine")
    assert cache_directory() == tmp_path / "home" / "mine"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", ["s3://bucket/some/where", "s3://bucket/some/where/", "/data"])
def test_new_remote_roots_are_fresh_and_below_the_one_named(
    monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setenv("PENSTOCK_REMOTE", root)
    made = {new_remote_path("a/b.jsonl") for _ in range(100)}
    assert len(made) == 100
    assert all(one.startswith(root.rstrip("/") + "/") for one in made)
    assert all(one.removeprefix(root.rstrip("/") + "/").count("/") == 2 for one in made)
    assert all(one.endswith("/a/b.jsonl") for one in made)


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd"])
def test_a_new_remote_name_stays_below_its_root(name: str) -> None:
    with pytest.raises(ValueError, match="stays below"):
        new_remote_path(name)


def test_without_a_remote_root_new_files_go_to_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PENSTOCK_REMOTE", raising=False)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert Path(new_remote_path("a")).parents[1] == tmp_path / "remote"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_plain_http_is_allowed_where_the_environment_names_such_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert not endpoint_is_plain_http()
    monkeypatch.setenv(name, "https://host")
    assert not endpoint_is_plain_http()
    monkeypatch.setenv(name, "http://host")
    assert endpoint_is_plain_http()


def test_the_secrets_of_the_environment_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(secrets_in_environment())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "two of them")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")  # As for local servers; part of many a word.
    assert set(secrets_in_environment()) - before == {"one secret", "two of them"}
