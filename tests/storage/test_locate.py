from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.storage import LocalStore, ObjectStore, StorageOptions, is_remote, join, locate

NAME = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs", "Cc"]), min_size=1
).filter(lambda name: name not in (".", "..") and "://" not in name)
NAMES = st.lists(NAME, min_size=1, max_size=4)
SCHEMES = st.sampled_from(["s3", "gs", "az"])


@given(NAMES)
def test_a_local_path_is_its_own_name(names: list[str]) -> None:
    path = "/" + "/".join(names)
    assert locate(path) == (LocalStore(), path)
    assert locate(Path(path)) == (LocalStore(), path)
    assert not is_remote(path)


@given(NAMES.filter(lambda names: not names[0].startswith("~")))  # A home directory.
def test_a_relative_path_is_made_absolute(names: list[str]) -> None:
    path = "/".join(names)
    assert locate(path) == (LocalStore(), f"{Path.cwd()}/{path}")


@given(NAMES, st.sampled_from(["", "localhost"]))
def test_a_file_url_is_a_local_path_with_its_escapes_resolved(names: list[str], host: str) -> None:
    path = "/" + "/".join(names)
    assert locate(f"file://{host}{quote(path)}") == (LocalStore(), path)


@given(SCHEMES, NAMES, st.sampled_from(["", "/"]))
def test_a_url_is_a_bucket_and_a_key_taken_as_written(
    scheme: str, names: list[str], end: str
) -> None:
    key = "/".join(names)
    store, name = locate(f"{scheme}://bucket/{key}{end}", StorageOptions({"region": "r"}))
    assert store == ObjectStore(f"{scheme}://bucket", StorageOptions({"region": "r"}))
    assert name == key
    assert store.path(name) == f"{scheme}://bucket/{key}"
    assert locate(store.path(name), StorageOptions({"region": "r"})) == (store, name)


@given(SCHEMES, st.sampled_from(["", "/", "//"]))
def test_a_bucket_alone_is_its_root_directory(scheme: str, end: str) -> None:
    assert locate(f"{scheme}://bucket{end}") == (ObjectStore(f"{scheme}://bucket"), "")


@given(st.text(max_size=30) | st.builds("{}://{}".format, NAME, NAME))
def test_remote_is_what_no_local_path_names(path: str) -> None:
    try:
        store, _ = locate(path)
    except OptionError:
        return
    assert is_remote(path) != isinstance(store, LocalStore)


@given(
    st.sampled_from(["/data", "/", "/data/", "file:///data", "s3://b", "s3://b/", "gs://b/d e"]),
    NAMES,
)
def test_what_is_joined_is_located_below(directory: str, names: list[str]) -> None:
    store, top = locate(directory)
    relative = "/".join(names)
    found, name = locate(join(directory, relative))
    assert found == store
    assert name == f"{top.rstrip('/')}/{relative}".removeprefix("" if top else "/")


@given(NAMES)
def test_the_case_of_a_scheme_says_nothing(names: list[str]) -> None:
    path = "/" + "/".join(names)
    assert locate(f"FILE://{quote(path)}") == locate(f"file://{quote(path)}")
    assert locate(join("File:///data", names[0])) == locate(join("file:///data", names[0]))
    assert locate(f"S3://bucket{path}") == locate(f"s3://bucket{path}")
    assert not is_remote(f"FILE://{path}")
    assert is_remote(f"S3://bucket{path}")


@pytest.mark.parametrize("inner", ["file:///data/a.jsonl", "s3://b/a.jsonl"])
def test_a_chain_with_a_cache_is_refused_with_the_place_itself(inner: str) -> None:
    for chain in ("simplecache::", "filecache::simplecache::", "blockcache://x::"):
        with pytest.raises(OptionError, match=f"chained URLs are not read.*kept anyway: {inner}"):
            locate(f"{chain}{inner}")


def test_joining_to_nothing_is_the_name() -> None:
    assert join("", "a/b") == "a/b"


@pytest.mark.parametrize("path", ["s4://b/k", "nothing://n/a", "a b://c", "://"])
def test_an_unknown_scheme_names_those_that_are_known(path: str) -> None:
    with pytest.raises(OptionError, match=r"file://, s3://, gs://, az://, http://, https://"):
        locate(path)


def test_a_tilde_is_a_home_directory_and_a_variable_is_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir("/")
    for path, name in {
        "~": f"{tmp_path}", "~/a b": f"{tmp_path}/a b", "~root/a": "/root/a", "./~/a": "/~/a",
        "~no-such-user/a": "/~no-such-user/a", "a/~": "/a/~", "$HOME/a": "/$HOME/a",
        "file:///~/a": "/~/a",
    }.items():  # fmt: skip
        assert locate(path) == (LocalStore(), name)
        assert not is_remote(path)
    assert locate(Path("~/a")) == (LocalStore(), f"{tmp_path}/a")


def test_a_file_url_of_another_machine_is_refused() -> None:
    with pytest.raises(OptionError, match="otherhost"):
        locate("file://otherhost/a")


@pytest.mark.parametrize("path", ["s3://", "s3:///key", "s3://key:secret@bucket/a"])
def test_a_url_without_bucket_or_with_credentials_is_refused_and_not_repeated(path: str) -> None:
    with pytest.raises(OptionError, match="storage_options") as raised:
        locate(path)
    assert "secret" not in str(raised.value)


def test_a_path_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        locate(3)  # type: ignore[arg-type]


def test_options_that_cannot_work_are_refused_for_local_paths_too(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="timeout"):
        locate(tmp_path, StorageOptions({"timeout": "soon"}))


def test_nothing_is_touched(tmp_path: Path) -> None:
    locate(tmp_path / "missing" / "a.jsonl")
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize("bucket", ["a b", "a#b", "a?b", "a\nb", "bücher", "a%20b", "a:b", "*"])
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_bucket_that_would_be_taken_for_another_is_refused(scheme: str, bucket: str) -> None:
    for end in ("", "/", "/key"):
        with pytest.raises(OptionError, match="buckets are named by"):
            locate(f"{scheme}://{bucket}{end}")


@pytest.mark.parametrize("bucket", ["a", "my-bucket.v2", "with_underscore", "UPPER", "$web"])
def test_buckets_have_the_names_that_stores_give_them(bucket: str) -> None:
    assert locate(f"s3://{bucket}/k") == (ObjectStore(f"s3://{bucket}"), "k")
