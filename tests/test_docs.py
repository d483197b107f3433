"""The code in README, docs and examples runs as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import documents

if TYPE_CHECKING:
    from tests.servers.s3_server import S3Server

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SECONDS = 200
"""Some documents start dozens of commands, on a machine that runs other tests, too."""


def s3_for(text: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Make the buckets that a text names, empty; return the environment that leads to them."""
    buckets = set(re.findall(r"s3://([a-z0-9.-]+)", text))
    if not buckets:
        return {}
    server: S3Server = request.getfixturevalue("s3_server")
    with closing(server.client()) as client:
        for bucket in buckets:
            client.create_bucket(Bucket=bucket)
            for key in server.list_keys(bucket):
                client.delete_object(Bucket=bucket, Key=key)
    return {
        "AWS_ACCESS_KEY_ID": server.access_key_id,
        "AWS_ENDPOINT_URL": server.url,
        "AWS_REGION": server.region,
        "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere_and_nothing_is_left_to_fill_in(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    for link in links:
        if "://" not in link:
            assert (document.parent / link).exists(), link
    assert not re.search(r"^[A-Z]+_[A-Z_]+$", text, re.MULTILINE)


def run_clean(
    program: Path, *arguments: Path, place: Path, s3: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a Python program as a new user would: only the data of the docs, no settings."""
    home = place / "home"
    work = place / "work"
    home.mkdir()
    shutil.copytree(ROOT / "docs" / "data", work / "docs" / "data")
    scripts = Path(sys.executable).parent
    environment = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "error",
        "TMPDIR": str(place),
        **(s3 or {}),
    }
    return subprocess.run(
        [sys.executable, "-P", "-s", program, *arguments],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def run_document(
    document: Path, place: Path, s3: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return run_clean(Path(documents.__file__), document, place=place, s3=s3)


@pytest.mark.timeout(SECONDS + 20)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_code_in_a_document_runs(
    document: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    running = [fence for fence in documents.fences(document) if fence.runs]
    s3 = s3_for("".join(fence.text for fence in running), request)
    done = run_document(document, tmp_path, s3)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(f"{document}: ran {len(running)} fences\n"), done.stdout


def test_the_readme_has_code_and_commands_that_run() -> None:
    found = documents.fences(ROOT / "README.md")
    assert any(fence.info == "python" for fence in found)
    assert any(fence.commands for fence in found)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    s3 = s3_for(example.read_text(encoding="utf-8"), request)
    done = run_clean(example, place=tmp_path, s3=s3)
    assert done.returncode == 0, done.stdout


def test_there_are_examples() -> None:
    assert EXAMPLES


def written(place: Path, text: str) -> Path:
    document = place / "document.md"
    document.write_text(text, encoding="utf-8")
    return document


def test_fences_share_names_and_may_await(tmp_path: Path) -> None:
    document = written(
        tmp_path,
        """
```python
import asyncio
from dataclasses import dataclass

@dataclass
class Count:
    n: int

async def numbers():
    yield Count(1)

asyncio.run(asyncio.sleep(0))
```
- in a list
  ```python
  async for count in numbers():
      await asyncio.sleep(0)
  open("seen", "w").write(str(count.n))
  ```
""",
    )
    done = run_document(document, tmp_path)
    assert done.stdout.endswith("ran 2 fences\n")
    assert (tmp_path / "work" / "seen").read_text() == "1"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("x = 1\n1 / 0", "line 5"),
        ("x = 1\nawait missing()", "line 5"),
        ("import sys\nsys.exit()", "line 5"),
        ("import warnings\nwarnings.warn('late')", "line 5"),
        ("x = (", "line 4"),
    ],
)
def test_a_failing_fence_fails_with_its_line(code: str, shown: str, tmp_path: Path) -> None:
    document = written(tmp_path, f"# Title\n\n```python\n{code}\n```\n\n```python\ny = 2\n```\n")
    done = run_document(document, tmp_path)
    assert done.returncode == 1
    assert shown in done.stdout
    assert f"{document}:4: this fence failed" in done.stdout


def test_commands_run_and_their_exit_code_counts(tmp_path: Path) -> None:
    fence = "```console\n$ penstock --help\nUsage: …\n$ false\n$ penstock \\\n    {}\n```\n"
    fine = written(tmp_path, fence.format("--help"))
    assert documents.fences(fine)[0].commands == ["penstock --help", "penstock \\\n    --help"]
    (tmp_path / "fine").mkdir()
    assert run_document(fine, tmp_path / "fine").stdout.endswith("ran 1 fences\n")
    wrong = written(tmp_path, fence.format("no-such-verb"))
    assert run_document(wrong, tmp_path).returncode == 1


def test_a_fence_marked_no_run_is_only_shown(tmp_path: Path) -> None:
    document = written(tmp_path, "```python no-run\n1 / 0\n```\n")
    assert run_document(document, tmp_path).stdout.endswith("ran 0 fences\n")


@pytest.mark.parametrize("text", ["```py\nx = 1\n```\n", "```python\nx = 1\n"])
def test_a_fence_that_would_be_overlooked_is_an_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"document\.md:1: "):
        documents.fences(written(tmp_path, text))
