"""How the house is built: folders, modules, imports, names. Each rule is checked, so it stays."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "penstock"
MOST_FILES = 26
MOST_LINES = 400
FORMAT_NAMES = {
    "jsonl", "csv", "parquet", "tokens", "JSON Lines", "CSV", "Parquet", "MDS", "Megatron-LM",
    "orc", "avro", "Arrow IPC", "ORC", "Avro",
}  # fmt: skip
FORMAT_ENDINGS = {
    ".jsonl", ".csv", ".tsv", ".parquet", ".mds", ".bin", ".idx", ".arrow", ".feather", ".ipc",
    ".orc", ".avro",
}  # fmt: skip
FORMAT_CLASSES = {
    "Dataset", "JsonlDataset", "CsvRows", "ParquetRows", "MdsRows", "MegatronTokens",
    "TableRows", "ArrowRows", "OrcRows", "AvroRows",
    "TokensDataset", "TokenSource", "LineScanner", "ArrayScanner", "CsvScanner",
}  # fmt: skip
OF_FORMATS = (
    "index/_formats.py",
    "jsonl/",
    "tables/",
    *(f"index/{of}/" for of in ("csv", "tokens")),
    *(f"datasets/{of}/" for of in ("text", "tables", "mds", "megatron", "tokens")),
)
ROWS = "penstock.index._formats"
TABLES = {"penstock.datasets._source", "penstock.cli._app"}
IN_PACKAGE = re.compile(r"\w+(\.\w+)*")
NAMED = re.compile(r"penstock(\.\w+)+:\w+(\.\w+)*")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of every module."""
    return {
        module_name(path): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.glob("**/*.py"))
    }


@cache
def facade_names(package: str) -> dict[str, str]:
    """Return the names that a façade offers, each with the module that defines it."""
    return {
        name: resolve_name(f".{module.value}", package)
        for node in ast.walk(trees()[package])
        if isinstance(node, ast.Dict)
        for module, names in zip(node.keys, node.values, strict=True)
        if isinstance(module, ast.Constant) and isinstance(names, ast.Constant)
        for name in str(names.value).split()
    }


def type_checking_imports(tree: ast.Module) -> set[ast.AST]:
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }


def imports() -> dict[str, set[str]]:
    """Return what each module imports at run time, in functions too; façades are seen through."""
    modules = trees()
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules.items():
        for node in set(ast.walk(tree)) - type_checking_imports(tree):
            if not isinstance(node, ast.ImportFrom) or node.module not in modules:
                continue
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in modules else facade_names(node.module).get(alias.name)
                found[name].add(target or node.module)
    return found


def named_as_text() -> dict[str, set[str]]:
    """Return the modules that each module names as text: "module:name", or in a table of its own.

    A table has texts behind the package of its module: "_view.Rows" in `datasets`, "show._show" in
    `cli`.
    """
    modules = trees()
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if NAMED.fullmatch(node.value):
                module, _, attribute = node.value.partition(":")
                offered = facade_names(module).get(attribute.partition(".")[0])
                found[name].add(offered or module)
            elif IN_PACKAGE.fullmatch(node.value) and name in TABLES:
                inside = f"{name.rpartition('.')[0]}.{node.value}"
                target = inside if inside in modules else inside.rpartition(".")[0]
                found[name] |= {target} & modules.keys()
    return found


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as cycle:
        found: list[str] = cycle.args[1]
        return found
    assert "penstock.errors" in order
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle({name: targets - {name} for name, targets in imports().items()}) == []


def test_only_rows_name_modules_that_come_back_to_them() -> None:
    """Rows of formats, of methods and of verbs point to later modules; no other text does."""
    graph, named = imports(), named_as_text()
    assert {ROWS, *TABLES} <= named.keys()
    for name in named.keys() - {ROWS, *TABLES}:
        graph[name] = graph[name] | named[name]
    assert circle({name: targets - {name} for name, targets in graph.items()}) == []


def test_what_is_named_as_text_is_there() -> None:
    for name, targets in named_as_text().items():
        assert targets <= trees().keys(), name


def test_one_class_name_is_one_class() -> None:
    names = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert len(names) > 100
    assert {name for name, count in names.items() if count > 1} == set()


def test_a_folder_is_seen_at_one_look() -> None:
    counts = Counter(path.parent for path in SOURCE.glob("**/*.py"))
    assert {str(folder): n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_no_module_is_two_ideas_long() -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.glob("**/*.py")
    }
    assert {str(path): length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_locks_are_taken_in_one_module() -> None:
    users = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"flock", "lockf"}
    }
    assert len(users) == 1, users


def test_only_rows_and_their_own_modules_know_formats() -> None:
    """Everything else asks the row of `index/_formats.py`, or the source."""
    found = []
    for path in SOURCE.glob("**/*.py"):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(OF_FORMATS):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [f"{name}:{node.lineno}" for node in ast.walk(tree) if _decides(node)]
    assert not found


def _decides(node: ast.AST) -> bool:
    """Whether an expression compares with a format's name, ending or class."""
    if isinstance(node, ast.Compare):
        return bool(_constants(node) & (FORMAT_NAMES | FORMAT_ENDINGS))
    if not isinstance(node, ast.Call):
        return False
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called == "isinstance":
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        return any(name.id in FORMAT_CLASSES for name in names)
    return called in ("endswith", "removesuffix") and bool(_constants(node) & FORMAT_ENDINGS)


def _constants(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def test_both_lists_of_a_facade_agree() -> None:
    for package, tree in trees().items():
        if "facade(" in ast.unparse(tree) and package != "penstock._lazy":
            typed = {
                alias.name: node.module
                for node in type_checking_imports(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            assert typed == facade_names(package), package
