"""The command as a process: exit codes, what goes to stdout and what to stderr, help, secrets."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import click.testing
import pytest

import penstock
from penstock.cli._app import app
from penstock.cli._verb import Verb, storage_option
from tests.cli.commands import SECONDS, command, invoke, run, written

VERBS = [
    *("info", "show", "index", "check", "profile", "materialize"),
    *("tokenize", "convert", "clean", "plan", "bench", "demo"),
]
SECRET = "hushhush-0123"


def test_the_exit_code_says_what_happened(logs: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.jsonl", "{oops")
    assert run("check", logs).returncode == 0
    assert run("check", bad).returncode == 1
    assert run("check").returncode == 2
    assert run("check", logs, "-o", "timeout=soon").returncode == 2
    assert run("check", tmp_path / "nothing").returncode == 3


def test_data_goes_to_stdout_and_the_rest_to_stderr(logs: Path, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.jsonl", "{oops", '{"id": 1}')
    done = run("show", bad, "--json")
    assert json.loads(done.stdout) == [{"id": 1}]
    assert done.stderr.startswith("penstock: warning: skipped ")
    done = run("show", tmp_path / "nothing")
    assert done.stdout == ""
    assert done.stderr == (
        f"penstock: cannot read {tmp_path}/nothing: there is no such file or directory.\n"
    )
    assert run("info", logs).stderr == ""


def test_the_installed_command_and_the_module_are_the_same(logs: Path) -> None:
    installed = Path(sys.executable).parent / "penstock"
    done = subprocess.run(
        [installed, "show", logs, "0"], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout == run("show", logs, "0").stdout != ""


def test_the_version_is_told() -> None:
    assert invoke("--version").stdout == f"penstock, version {penstock.__version__}\n"


def test_help_lists_every_verb_without_loading_any() -> None:
    program = "import sys; from penstock.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    for verb in VERBS:
        assert re.search(rf"^  {verb} +\S", done.stdout, re.MULTILINE)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "pyarrow", "obstore", "tqdm", "penstock.cli.info._info"}


@pytest.mark.parametrize("verb", VERBS)
def test_help_helps_with_examples_that_are_understood(verb: str) -> None:
    done = invoke(verb, "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Usage: penstock {verb} ")
    assert "--json" in done.stdout
    _, _, tail = done.stdout.partition("Examples:\n")
    examples = [shlex.split(line) for line in tail.splitlines() if line.strip()]
    assert examples
    parsed = app.get_command(click.Context(app), verb)
    assert parsed is not None
    for name, given, *arguments in examples:
        assert (name, given) == ("penstock", verb)
        parsed.make_context(verb, arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["info"],
        ["info", "a", "b"],
        ["info", "a", "--nonsense"],
        ["show", "a", "-x"],
        ["demo", "--records", "1"],
    ],
)
def test_a_wrong_command_line_is_told_with_the_way_to_help(arguments: list[str]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "--help" in done.stderr


def test_a_pattern_that_the_shell_expanded_is_explained() -> None:
    assert "needs quotes" in invoke("info", "a.jsonl", "b.jsonl", "c.jsonl").stderr


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_reader_that_has_seen_enough_ends_it_in_silence(tmp_path: Path, verb: str) -> None:
    file = written(tmp_path / "a.jsonl", *['["%s"]' % ("x" * 100)] * 20_000)
    arguments = {"show": [":"], "check": ["--max", "20000"]}[verb]
    with subprocess.Popen(
        command(verb, file, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == {"show": 0, "check": 1}[verb]


def test_a_full_disk_behind_stdout_is_an_error(logs: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("show", logs), stdout=full, stderr=subprocess.PIPE, timeout=SECONDS, check=False
        )
    assert (done.returncode, done.stderr) == (3, b"penstock: No space left on device\n")


def test_records_are_printed_in_any_locale(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", '{"text": "zażółć \\ud800"}')
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = run("show", file, env=environment, encoding="latin-1")
    assert done.returncode == 0
    assert "za\\u017có\\u0142\\u0107 \\ud800" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "s3://bucket/logs"],
        ["show", "s3://bucket/logs.jsonl"],
        ["check", "s3://bucket/logs"],
        ["convert", "s3://bucket/logs", "out"],
        ["convert", "{logs}", "s3://bucket/out"],
        ["convert", "{logs}", "s3://bucket/out.jsonl"],
    ],
)
def test_a_secret_never_shows_when_storage_is_gone(
    arguments: list[str], logs: Path, tmp_path: Path, dead_endpoint: str
) -> None:
    done = run(
        *(argument.format(logs=logs) for argument in arguments),
        *("-o", f"endpoint={dead_endpoint}", "-o", "retry_timeout=0.5", "-o", "region=x"),
        *("-o", "access_key_id=AKIDAKID", "-o", f"secret_access_key={SECRET}"),
        cwd=tmp_path,
    )
    assert done.returncode == 3
    assert "no connection to the server" in done.stderr
    assert "Traceback" not in done.stderr
    for text in (done.stdout, done.stderr):
        assert SECRET not in text
        assert "AKIDAKID" not in text


@pytest.mark.parametrize(
    "given",
    [
        [SECRET],
        [f"={SECRET}"],
        [f"no_such_secret_key={SECRET}"],
        [f"secret_access_key={SECRET}", "timeout=soon"],
        [f"secret_access_key={SECRET}", "no_such_option=1"],
    ],
)
def test_a_secret_never_shows_when_options_are_wrong(given: list[str]) -> None:
    options = [text for one in given for text in ("-o", one)]
    done = invoke("info", "s3://bucket/logs", *options)
    assert done.exit_code == 2
    assert SECRET not in done.output


def test_a_secret_in_the_url_is_refused_and_not_repeated() -> None:
    for verb in ("info", "show", "check"):
        done = invoke(verb, f"s3://key:{SECRET}@bucket/logs")
        assert done.exit_code == 2
        assert SECRET not in done.output


def failing(failure: BaseException) -> click.Command:
    @click.command(cls=Verb)
    @storage_option
    def verb(**_: object) -> int:
        raise failure

    return verb


@pytest.mark.parametrize(
    ("failure", "code", "told"),
    [
        (RuntimeError(f"odd {SECRET}"), 3, r"unexpected RuntimeError: odd \*\*\* \(.*\)"),
        (OSError(5, "Input/output error", "a.jsonl"), 3, "a.jsonl: Input/output error"),
        (MemoryError(), 3, "unexpected MemoryError"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_no_error_is_a_traceback(failure: BaseException, code: int, told: str) -> None:
    failure.add_note(f"note {SECRET}")
    done = click.testing.CliRunner().invoke(failing(failure), ["-o", f"secret_access_key={SECRET}"])
    assert done.exit_code == code
    assert re.search(f"^penstock: {told}", done.stderr)
    assert "penstock: note ***" in done.stderr
    assert SECRET not in done.output
    assert "Traceback" not in done.output


def test_help_works_where_nothing_may_be_written() -> None:
    done = run("info", "--help", cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
    assert done.returncode == 0
