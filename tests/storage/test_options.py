from __future__ import annotations

import copy
import pickle
import traceback
from datetime import timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.storage import StorageOptions

NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=20)
VALUES = st.text(max_size=20) | st.integers() | st.booleans() | st.floats(allow_nan=False)
# What cannot be part of a name or of the mask, so that it shows only where it leaks.
HIDDEN = st.text("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789/+=", min_size=4, max_size=40).filter(
    lambda text: text not in ("TRUE", "FALSE")  # What a switch with "key" in its name says.
)
SECRET_NAMES = [
    "secret_access_key",
    "aws_secret_access_key",
    "access_key_id",
    "aws_session_token",
    "session_token",
    "token",
    "account_key",
    "azure_storage_account_key",
    "sas_key",
    "client_secret",
    "service_account_key",
    "password",
    "bearer_token",
    "SECRET_ACCESS_KEY",
]
SECONDS = ["retry_timeout", "timeout", "connect_timeout", "read_timeout", "pool_idle_timeout"]


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_options_are_a_mapping_of_text_by_lower_case_name(given_options: dict[str, object]) -> None:
    options = StorageOptions(given_options)
    assert sorted(options) == sorted(given_options)
    assert len(options) == len(given_options)
    for name, value in given_options.items():
        assert options[name] == (str(value).lower() if isinstance(value, bool) else str(value))
    assert "no such option" not in options
    with pytest.raises(KeyError):
        _ = options["no such option"]


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_equal_options_are_equal_however_they_were_made(given_options: dict[str, object]) -> None:
    options = StorageOptions(given_options)
    others = [
        StorageOptions(dict(reversed(given_options.items()))),
        StorageOptions({name.upper(): value for name, value in given_options.items()}),
        StorageOptions(options),
        pickle.loads(pickle.dumps(options)),
        copy.deepcopy(options),
    ]
    assert all(other == options and hash(other) == hash(options) for other in others)
    assert StorageOptions({**given_options, "another": 1, "more": 2}) != options
    assert options != dict(options)


def test_no_options_are_none() -> None:
    assert StorageOptions() == StorageOptions(None) == StorageOptions({})
    assert not StorageOptions()
    assert repr(StorageOptions()) == "StorageOptions({})"


@given(st.sampled_from(SECRET_NAMES), HIDDEN)
def test_a_secret_shows_in_no_text(name: str, secret: str) -> None:
    options = StorageOptions({name: secret, "region": "eu-west-1"})
    for text in (
        repr(options),
        str(options),
        f"{options}",
        f"{[options]!r}",
        repr(options._items),  # noqa: SLF001 (what a debugger or a traceback shows)
        options.redact(f"the server said: {secret} is not {secret}"),
    ):
        assert secret not in text
    assert "eu-west-1" in repr(options)
    assert options[name.lower()] == secret


@given(HIDDEN, HIDDEN)
def test_a_secret_that_holds_another_is_masked_whole(key_id: str, rest: str) -> None:
    assume(key_id not in rest and rest not in key_id)
    options = StorageOptions({"access_key_id": key_id, "secret_access_key": key_id + rest})
    shown = options.redact(f"<{key_id + rest}> <{key_id}>")
    assert shown == "<***> <***>"


def test_a_password_in_a_url_shows_in_no_text() -> None:
    options = StorageOptions(
        {"endpoint": "http://me:hush@localhost:9000", "proxy_url": "https://me:hush@proxy/x"}
    )
    assert "hush" not in repr(options)
    assert "localhost:9000" in repr(options)
    assert (
        options.redact("GET http://me:hush@localhost:9000/b") == "GET http://***@localhost:9000/b"
    )
    assert options["endpoint"] == "http://me:hush@localhost:9000"


def test_secrets_in_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hushhush")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    assert StorageOptions().redact("it is hushhush") == "it is ***"


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", ["", "soon", "-1", "0", -2.5, "nan", "inf", "1 minute", None])
def test_seconds_must_be_a_positive_number(name: str, value: object) -> None:
    options = StorageOptions({name: value})
    with pytest.raises(OptionError, match=name) as raised:
        options.check()
    assert repr(str(value)) in str(raised.value)


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [30, " 30 ", 30.0, "30s", timedelta(seconds=30)])
def test_seconds_are_numbers_texts_or_time_deltas(name: str, value: object) -> None:
    options = StorageOptions({name: value})
    options.check()
    if name in ("timeout", "retry_timeout"):
        assert getattr(options, name) == 30
    else:
        assert options.client_options()[name] == timedelta(seconds=30)


def test_the_documented_defaults_hold() -> None:
    options = StorageOptions()
    assert (options.retry_timeout, options.timeout) == (120, 30)
    assert options.client_options() == {"connect_timeout": timedelta(seconds=5)}
    assert options.store_config() == {}


def test_options_go_to_the_client_or_to_the_store_and_to_one_only() -> None:
    options = StorageOptions(
        {
            "endpoint": "http://localhost",
            "secret_access_key": "hush",
            "allow_http": True,
            "proxy_url": "http://proxy",
            "retry_timeout": 3,
            "timeout": 2,
        }
    )
    assert options.store_config() == {"endpoint": "http://localhost", "secret_access_key": "hush"}
    client = options.client_options()
    assert client["allow_http"] == "true"
    assert client["proxy_url"] == "http://proxy"
    assert "retry_timeout" not in client


@pytest.mark.parametrize("bad", [{"timeout": "soon"}, {"retry_timeout": 0}])
def test_a_bad_option_shows_no_secret_even_with_its_locals(bad: dict[str, object]) -> None:
    options = StorageOptions({**bad, "secret_access_key": "hushhush", "access_key_id": "psst"})
    with pytest.raises(OptionError) as raised:
        options.check()
    with pytest.raises(KeyError) as missing:
        _ = options["zzz"]
    for failure in (raised.value, missing.value):
        shown = "".join(
            traceback.TracebackException.from_exception(failure, capture_locals=True).format()
        )
        assert "options = " in shown
        assert "hushhush" not in shown
        assert "psst" not in shown


@pytest.mark.parametrize(
    "endpoint",
    ["localhost:9000", "not a url", "http://", "ftp://host", "http://h h", "http://h:99999", ""],
)
@pytest.mark.parametrize("name", ["endpoint", "aws_endpoint_url", "azure_storage_endpoint"])
def test_an_endpoint_is_a_url(name: str, endpoint: str) -> None:
    with pytest.raises(OptionError, match=f"{name}=.*expected a URL") as raised:
        StorageOptions({name: endpoint}).check()
    assert repr(endpoint) in str(raised.value)
    StorageOptions({name: "http://localhost:9000"}).check()
    StorageOptions({name: "https://host/path"}).check()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\0", "\t"])
def test_a_key_read_from_a_file_with_its_line_end_is_named_and_not_shown(end: str) -> None:
    options = StorageOptions({"secret_access_key": f"hushhush{end}"})
    with pytest.raises(OptionError, match="secret_access_key: it holds a line break") as raised:
        options.check()
    assert "hushhush" not in str(raised.value)
