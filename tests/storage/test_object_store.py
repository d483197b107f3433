from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.errors import ObjectNotFoundError, OptionError, StorageError
from penstock.storage import ObjectStore, StorageOptions
from tests.rounds import rounds
from tests.servers.obstore_client import obstore_client
from tests.storage.store_contract import Place, StoreContract
from tests.storage.store_machine import StoreMachine

if TYPE_CHECKING:
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> ObjectStore:
    return ObjectStore(f"s3://{bucket}", StorageOptions(s3_server.storage_options))


@pytest.fixture
def seen(fault_proxy: FaultProxy, bucket: str) -> ObjectStore:
    """The same store, each of its requests counted by the proxy."""
    return ObjectStore(f"s3://{bucket}", StorageOptions(fault_proxy.storage_options))


class TestObjectStoreOnS3(StoreContract):
    @pytest.fixture
    def place(self, store: ObjectStore) -> Place:
        return Place(store, "some/place")


def test_a_bucket_is_a_directory_and_its_name_is_empty(store: ObjectStore) -> None:
    place = Place(store, "")
    with pytest.raises(ObjectNotFoundError, match=store.url):
        list(store.list(""))
    names = [place.publish(name, b"x", exclusive=True) for name in ("a b", "sub/a", "sub/b/c")]
    assert names == ["a b", "sub/a", "sub/b/c"]
    assert list(place.listed()) == ["a b"]
    assert sorted(place.listed(recursive=True)) == names
    assert place.read("a b") == b"x"
    store.delete("a b")
    assert place.listed() == {}


def test_an_object_store_does_what_a_perfect_one_does(store: ObjectStore) -> None:
    numbers = itertools.count()

    def machine() -> StoreMachine:
        return StoreMachine(Place(store, f"place-{next(numbers)}"))

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(max_examples=rounds(4, 60), stateful_step_count=12),
    )


def test_a_prefix_ends_at_a_slash(store: ObjectStore) -> None:
    place = Place(store, "data")
    name = place.publish("a", b"x")
    Place(store, "data-2").publish("b", b"x")
    Place(store, "").publish("dat", b"x")
    assert list(place.listed(recursive=True)) == [name]
    with pytest.raises(ObjectNotFoundError):
        list(store.list("dat"))


def test_the_mark_of_a_console_folder_is_not_a_file(
    s3_server: S3Server, bucket: str, store: ObjectStore
) -> None:
    s3_server.put(bucket, "folder/", b"")
    assert list(store.list("folder")) == []
    s3_server.put(bucket, "folder/a", b"x")
    assert [entry.name for entry in store.list("folder")] == ["folder/a"]


def test_a_listing_of_more_than_one_page_is_whole(
    s3_server: S3Server, bucket: str, store: ObjectStore
) -> None:
    names = [f"many/{number:05d}" for number in range(rounds(100, 2001))]  # One page: 1,000.
    client = obstore_client(bucket, s3_server.storage_options)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: client.put(name, b""), names))
    assert sorted(entry.name for entry in store.list("many")) == names


def test_a_key_that_would_climb_out_of_its_directory_is_refused_and_named(
    s3_server: S3Server, bucket: str, store: ObjectStore
) -> None:
    s3_server.put(bucket, "d/../../a", b"x")
    with pytest.raises(StorageError, match=r"cannot list .*d/\.\./\.\./a"):
        list(store.list("d", recursive=True))


def test_requests_are_as_few_as_can_be(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, seen: ObjectStore
) -> None:
    s3_server.put(bucket, "d/a", bytes(5_000_000))
    entry = next(iter(seen.list("d")))
    file = seen.open("d/a", entry)
    file.read_at(0, 100)
    file.read_ranges([(0, 10), (1_000_000, 10), (4_000_000, 10), (500, 10), (7, 0)])
    file.read_at(3, 0)
    file.close()
    assert [request.method for request in fault_proxy.requests] == ["GET"] * 4
    assert fault_proxy.count("GET", "list-type=2") == 1
    assert sorted(r.range for r in fault_proxy.requests if r.range) == [
        "bytes=0-1000009",
        "bytes=0-99",
        "bytes=4000000-4000009",
    ]


def test_every_read_asks_for_the_version_that_was_opened(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, seen: ObjectStore
) -> None:
    s3_server.put(bucket, "a", b"content")
    file = seen.open("a")
    file.read_at(0, 3)
    file.read_at(3, 4)
    wanted = {r.headers.get("if-match") for r in fault_proxy.requests if r.method == "GET"}
    assert wanted == {seen.entry("a").version}


def test_nothing_is_asked_of_the_server_before_it_must_be(dead_endpoint: str) -> None:
    store = ObjectStore("s3://bucket", StorageOptions({"endpoint": dead_endpoint}))
    draft = store.draft("d", "x")
    draft.write(b"x" * 10_000)
    draft.discard()
    assert store.clear_dead_drafts("d") == []
    assert store.path("d/x") == "s3://bucket/d/x"


def test_an_option_that_the_store_does_not_know_is_named(bucket: str) -> None:
    store = ObjectStore(f"s3://{bucket}", StorageOptions({"endpiont": "http://localhost"}))
    with pytest.raises(OptionError, match="endpiont"):
        store.entry("a")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID"])
def test_an_environment_that_the_client_panics_at_is_an_error_like_any_other(
    monkeypatch: pytest.MonkeyPatch, bucket: str, name: str
) -> None:
    for known in ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(known, "known")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv(name, "localhost\n9000")
    store = ObjectStore(f"s3://{bucket}")
    for call in (store.entry, lambda name: list(store.list(name))):
        with pytest.raises(OptionError, match=r"check the endpoint.*environment variables"):
            call("a")


def test_a_draft_after_a_failed_write_is_not_published(store: ObjectStore) -> None:
    draft = store.draft("", "a")
    draft.write(b"first")
    with pytest.raises(TypeError):
        draft.write("not bytes")  # type: ignore[arg-type]
    for name, exclusive in (("a", False), ("b", True)):
        with pytest.raises(StorageError, match="an earlier write failed"):
            draft.publish(name, exclusive=exclusive)
    draft.discard()
    with pytest.raises(ObjectNotFoundError):
        list(store.list(""))
