from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
    StorageError,
    StoragePermissionError,
)
from penstock.storage import (
    Meter,
    StorageOptions,
    _http_client,
    is_pattern,
    is_remote,
    locate,
    match,
    metered,
)
from penstock.storage._fork import guarded_client
from tests.faults.child import run
from tests.servers.http_lies import DRIPS, LIES, lying_server
from tests.storage import http_programs
from tests.storage.store_contract import FilledPlace, Place, ReadContract, ReadOnlyContract

if TYPE_CHECKING:
    from penstock.storage import OpenFile
    from tests.servers.http_files import HttpFiles

QUICK = {"retry_timeout": "0.4", "timeout": "5"}


@dataclass(frozen=True)
class HttpPlace(FilledPlace):
    def name(self, *parts: str) -> str:
        return f"{self.directory}/{quote('/'.join(parts))}"


class TestHttpStore(ReadContract, ReadOnlyContract):
    @pytest.fixture
    def place(self, web: HttpFiles) -> Place:
        store, directory = locate(f"{web.url}/some/place")
        return HttpPlace(store, directory, web.put)


def opened(url: str, **options: str) -> OpenFile:
    store, name = locate(url, StorageOptions(options))
    return store.open(name)


@pytest.mark.parametrize("tag", ['"{}"', 'W/"{}"', ""])
@pytest.mark.parametrize("size", [1000, 1001])
def test_a_server_that_ignores_if_match_mixes_no_versions(
    web: HttpFiles, tag: str, size: int
) -> None:
    web.tag, web.ignores_if_match = tag, True
    file = opened(web.put("/a", b"o" * 1000))
    assert file.read_at(0, 10) == b"o" * 10
    web.put("/a", b"n" * size)
    web.times["/a"] += 2
    with pytest.raises(ObjectChangedError, match=r"/a was replaced while it was being read"):
        file.read_at(10, 10)


def test_a_weak_tag_matches_what_it_came_with(web: HttpFiles) -> None:
    web.tag = 'W/"{}"'
    assert opened(web.put("/a", b"content")).read_at(0, 7) == b"content"


def test_a_server_that_ignores_ranges_is_refused_and_named(web: HttpFiles) -> None:
    web.ignores_ranges = True
    file = opened(web.put("/a", b"content"))
    for start, length in ((0, 7), (2, 3)):
        with pytest.raises(StorageError, match=rf"{web.url}/a \(bytes .*ignores ranges.*Download"):
            file.read_at(start, length)


def test_a_redirect_is_followed(web: HttpFiles) -> None:
    web.put("/there/a b", b"content")
    web.moved["/here"] = "/there/a%20b?signed=1"
    file = opened(f"{web.url}/here?download=1")
    assert (file.size, file.read_at(3, 4)) == (7, b"tent")
    assert [one.target for one in web.asked][-2:] == ["/here?download=1", "/there/a%20b?signed=1"]


def test_a_circle_of_redirects_ends(web: HttpFiles) -> None:
    web.moved.update({"/a": "/b", "/b": "/a"})
    with pytest.raises(StorageError, match=f"cannot read {web.url}/a"):
        opened(f"{web.url}/a", **QUICK)


@pytest.mark.parametrize("status", [403, 405])
def test_a_server_without_head_is_asked_for_the_first_byte(web: HttpFiles, status: int) -> None:
    web.no_head = status
    file = opened(web.put("/a", b"content"))
    assert (file.size, file.read_at(0, 7)) == (7, b"content")
    assert [one.range for one in web.asked if one.method == "GET"] == ["bytes=0-0", "bytes=0-6"]


def test_an_answer_without_a_length_is_asked_for_the_first_byte(web: HttpFiles) -> None:
    web.hides_length = True
    assert opened(web.put("/a", b"content")).size == 7


def test_what_breaks_off_goes_on_and_what_is_throttled_is_asked_again(web: HttpFiles) -> None:
    content = bytes(range(256)) * 4000
    file = opened(web.put("/a", content))
    web.resets, web.refusals = 2, [429, 503]
    with metered(Meter()) as meter:
        assert file.read_at(0, len(content)) == content
    assert meter is not None
    counts = meter.counts()
    assert (counts["requests"], counts["retries"], counts["throttled"]) == (5, 4, 2)


def test_what_stays_broken_is_given_up_and_named(web: HttpFiles, dead_endpoint: str) -> None:
    file = opened(web.put("/a", b"content"), **QUICK)
    web.resets = 10**6
    with pytest.raises(StorageError, match=rf"{web.url}/a \(bytes 0 to 7\).*given up after 0\.4 s"):
        file.read_at(0, 7)
    with pytest.raises(StorageError, match="no connection to the server"):
        opened(f"{dead_endpoint}/a", **QUICK)


def test_refusals_are_told_apart(web: HttpFiles) -> None:
    with pytest.raises(ObjectNotFoundError, match="the server has no such file"):
        opened(f"{web.url}/missing")
    file = opened(web.put("/a", b"content"))
    web.refusals = [403]
    with pytest.raises(StoragePermissionError, match="access denied"):
        file.read_at(0, 7)


@pytest.mark.parametrize("query", ["a=1&b=%2F", "X-Sig=a%2Fb%3D&list[]=*", "?a?b", "a={b}|c"])
def test_a_query_is_sent_as_it_is(web: HttpFiles, query: str) -> None:
    file = opened(f"{web.put('/a.jsonl', b'content')}?{query}")
    assert file.read_at(0, 7) == b"content"
    assert {one.target.replace("%7B", "{").replace("%7D", "}") for one in web.asked} == {
        f"/a.jsonl?{query}"
    }
    assert not is_pattern(file.path)


def test_a_query_has_no_slash_and_a_fragment_is_not_sent(web: HttpFiles) -> None:
    store, name = locate(f"{web.url}/d/a.jsonl?of=x/y#part")
    assert name == f"{web.url}/d/a.jsonl?of=x%2Fy"
    assert locate(name) == (store, name)


@pytest.mark.parametrize("path", ["/a%2Fb", "/a//b", "/%c3%bc", "/%C3%BC", "/ü", "/a b", "/a\\b"])
def test_a_path_reaches_the_server_as_it_was_meant(web: HttpFiles, path: str) -> None:
    web.put(path, b"content")
    assert opened(f"{web.url}{path}").read_at(0, 7) == b"content"
    assert {one.target for one in web.asked} == {quote(path, safe="/%")}


def test_threads_make_more_clients_than_are_kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # Else a thread is hardly ever interrupted where it matters.
    monkeypatch.setattr("penstock.storage._fork._clients", {})

    def make(thread: int) -> int:
        return len({guarded_client((thread, number), object) for number in range(8_000)})

    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(make, range(8)))
    finally:
        sys.setswitchinterval(interval)


def test_files_of_one_server_share_connections(web: HttpFiles) -> None:
    for number in range(20):
        opened(f"{web.put(f'/{number}', b'content')}?download=1").read_at(0, 7)
    assert len(web.asked) == 40
    assert web.connections < 10


@pytest.mark.parametrize("path", ["", "/", "/data/", "/data/*.jsonl", "/**", "/[ab].jsonl?x=1"])
def test_folders_and_patterns_are_refused(web: HttpFiles, path: str) -> None:
    url = f"{web.url}{path}"
    with pytest.raises(ObjectNotFoundError, match="Give the URLs of the files, as a list"):
        match(url) if is_pattern(url) else opened(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@host/a", "https://user:secret@host", "https://user@host/a", "http://",
        "http:///a", "http://h/../a", "http://h/a/%2e%2E/b", "http://h/./a", "http://h\\@x/a",
    ],
)  # fmt: skip
def test_a_url_that_may_lead_elsewhere_or_shows_a_password_is_refused(url: str) -> None:
    with pytest.raises(OptionError) as raised:
        locate(url)
    assert "secret" not in str(raised.value)


def test_an_option_that_http_does_not_have_is_named(web: HttpFiles) -> None:
    with pytest.raises(OptionError, match="storage option region: http:// has no such option"):
        opened(web.put("/a", b""), region="eu")


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_url_has_one_normal_form(path: str, query: str) -> None:
    url = f"https://host/{path}?{query}"
    assert is_remote(url)
    try:
        store, name = locate(url)
    except OptionError:
        return
    assert locate(name) == (store, name)
    assert name.isascii()
    assert "/" not in name.partition("?")[2]
    assert not {*name} & {*' \t\n\\"<>`'}


def test_no_body_is_read_beyond_what_headers_and_request_allow() -> None:
    with lying_server() as server:
        outcomes = run(http_programs.read_lies, server.url, [*LIES])
    said = {name: outcome.partition(": ")[2] for name, outcome in outcomes.items()}
    for name in LIES:
        assert said[name].startswith(f"cannot read {server.url}/{name} (bytes 0 to 10): "), said
        # What the sockets of both sides hold is sent without being read.
        assert server.sent[name] < 32 << 20, name
    for name in ("long-error", "endless-error", "endless-redirect"):
        assert "access denied (the server said: 403)" in said[name]
    assert "the server has no such file" in said["chunked-error"]
    for name in ("longer-range", "endless-range", "chunked-range"):
        assert "the server sends more than was asked for" in said[name]
    for name in ("whole-file", "other-range"):
        assert "ignores ranges" in said[name]


def test_an_answer_that_drips_ends_with_the_time_of_a_request() -> None:
    options = StorageOptions({"timeout": "0.5", "retry_timeout": "0.1"})
    with lying_server() as server:
        for name in DRIPS:
            store, inside = locate(f"{server.url}/{name}", options)
            with pytest.raises(StorageError, match=r"did not answer in time|access denied"):
                store.open(inside).read_at(0, 10)


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(web: HttpFiles) -> None:
    file = opened(web.put("/a", b"content"))
    for connections in _http_client._kept.values():  # noqa: SLF001 (as the server would)
        for connection in connections:
            connection.sock.shutdown(socket.SHUT_RD)
    assert file.read_at(0, 7) == b"content"


def test_a_proxy_is_asked_for_whole_urls(web: HttpFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    web.files["http://elsewhere.example/a"] = b"content"
    web.times["http://elsewhere.example/a"] = 1.0
    proxy = web.url.replace("//", "//me:hush@")
    assert opened("http://elsewhere.example/a?x=1", proxy_url=proxy).read_at(0, 7) == b"content"
    monkeypatch.setenv("http_proxy", web.url)
    assert opened("http://elsewhere.example/a").size == 7
    assert {one.target for one in web.asked} == {
        "http://elsewhere.example/a?x=1",
        "http://elsewhere.example/a",
    }


def test_a_forked_child_has_connections_of_its_own(web: HttpFiles) -> None:
    file = opened(web.put("/a", b"content"))
    assert file.read_at(0, 7) == b"content"
    child = os.fork()
    if not child:
        os._exit(file.read_at(3, 4) != b"tent")
    assert os.waitpid(child, 0)[1] == 0
    assert file.read_at(0, 3) == b"con"
