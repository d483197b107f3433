"""Promises about the package as a whole: what loads, what is declared, what is documented."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock
from penstock._lazy import require
from penstock.errors import MissingExtraError
from tests.rounds import rounds

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "penstock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = sorted(module.name for module in pkgutil.walk_packages([str(SOURCE)], prefix="penstock."))
FACADES = ["penstock", *(name for name in MODULES if re.fullmatch(r"penstock\.[a-z]\w*", name))]
HEAVY = {"numpy", "pyarrow", "torch"}


@pytest.mark.parametrize(
    "name", ["penstock", "penstock.errors", "penstock.jsonl", "penstock.storage"]
)
def test_importing_loads_nothing_heavy(name: str) -> None:
    program = f"import sys, {name}; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    assert name in loaded
    assert not HEAVY & set(loaded)


def test_opening_an_index_loads_no_arrow(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    program = "import sys, penstock; print(penstock.open('a.jsonl')[0], *sys.modules, sep='\\n')"
    command = [sys.executable, "-c", program]
    for _ in range(2):
        told = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    record, *loaded = told.stdout.splitlines()
    assert record == "{'x': 1}"
    assert "penstock.datasets" in loaded
    # They took more memory and time than the index of a billion records.
    assert not {"pyarrow", "torch", "asyncio"} & set(loaded)


# What others made is imported once; then each module of ours by a fork that has none of ours yet.
IMPORT_EACH = """
import importlib, os, sys, traceback
import msgspec, numpy, obstore, orjson, pyarrow, pyarrow.compute, torch, zstandard
failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
print(*failed)
"""


def test_every_module_imports_on_its_own() -> None:
    # tests/test_layout.py finds circles in all of them, without running any.
    some = MODULES[:: rounds(8, 1)]
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH, *some]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert told.split() == []


@pytest.mark.parametrize("name", FACADES)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    facade = importlib.import_module(name)
    assert facade.__all__
    assert all(isinstance(public, str) for public in facade.__all__)
    assert len(facade.__all__) == len(set(facade.__all__))
    for public in facade.__all__:
        assert getattr(facade, public) is not None
        assert public in dir(facade)


@pytest.mark.parametrize("name", FACADES)
def test_an_unknown_name_is_an_attribute_error_that_names_it(name: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(name).no_such_name


def test_a_missing_extra_names_the_pip_install() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock\[ray\]'"):
        require("no_such_package", extra="ray", purpose="running on a cluster")


def test_a_broken_dependency_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import a_part_that_is_gone")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_gone") as failure:
        require("half_installed", extra="ray", purpose="running on a cluster")
    assert not isinstance(failure.value, MissingExtraError)


def test_a_module_that_another_thread_is_importing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_load.py").write_text("import time\ntime.sleep(0.3)\nis_whole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    other = threading.Thread(target=importlib.import_module, args=["slow_to_load"])
    other.start()
    while "slow_to_load" not in sys.modules:
        time.sleep(0.001)
    assert require("slow_to_load", extra="ray", purpose="waiting").is_whole
    other.join()
    assert require("slow_to_load", extra="ray", purpose="waiting").is_whole


def test_the_version_has_one_source() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert penstock.__version__ == importlib.metadata.version("penstock")


def declared() -> set[str]:
    """Return the names of all dependencies in pyproject.toml."""
    listed = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    names = {canonicalize_name(Requirement(line).name) for lines in listed for line in lines}
    return names - {"penstock"}  # The extra for development names others of its own.


def test_every_dependency_is_argued_and_nothing_else() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    argued = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(argued) == len(set(argued))
    assert {canonicalize_name(name) for name in argued} == declared()


def test_every_extra_that_an_error_names_exists() -> None:
    named = {
        extra
        for module in SOURCE.glob("**/*.py")
        for extra in re.findall(r"extra=\"([^\"]+)\"", module.read_text(encoding="utf-8"))
    }
    assert named <= set(PROJECT["optional-dependencies"])


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> None:
    """Collect what an installed package needs, and what that needs, into `seen`."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    for line in importlib.metadata.requires(name) or []:
        wanted = Requirement(line)
        # Without an extra the marker is asked with an empty one.
        if wanted.marker is None or any(
            wanted.marker.evaluate({"extra": extra}) for extra in extras | {""}
        ):
            needed(canonicalize_name(wanted.name), frozenset(wanted.extras), seen)


def test_constraints_pin_everything_that_the_tests_install() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(name): version for name, version in (x.split("==") for x in lines)}
    assert lines[0].startswith("torch==")
    seen: set[tuple[str, frozenset[str]]] = set()
    needed("penstock", frozenset({"dev"}), seen)
    names = {name for name, _ in seen} - {"penstock"}
    assert {"numpy", "pytest", "botocore"} <= names
    # torch says what it was built for behind a plus.
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name in names}
    assert {name: pins.get(name) for name in installed} == installed


def test_every_room_is_on_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in SOURCE.iterdir()
        if not path.name.startswith("_") and (path.is_dir() or path.suffix == ".py")
    }
    assert {"errors.py", "jsonl/", "storage/"} <= rooms
    assert not {room for room in rooms if f"`{room}`" not in page}


def test_every_test_has_a_timeout(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) > 0
    assert pytestconfig.getini("timeout_method") == "thread"
