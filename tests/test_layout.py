"""How the house is built: folders, modules, imports, names. Each rule is checked, so it stays."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "penstock"
MOST_FILES = 26
MOST_LINES = 400
FORMAT_NAMES = {"jsonl", "csv", "parquet", "JSON Lines", "CSV", "Parquet", "MDS", "Megatron-LM"}
FORMAT_ENDINGS = {".jsonl", ".csv", ".tsv", ".parquet", ".mds", ".bin", ".idx"}
FORMAT_CLASSES = {
    "Dataset", "JsonlDataset", "CsvRows", "ParquetRows", "MdsRows", "MegatronTokens",
    "TokensDataset", "TokenSource",
}  # fmt: skip
OF_FORMATS = (
    "index/",
    "jsonl/",
    *(f"datasets/{of}/" for of in ("text", "parquet", "mds", "megatron", "tokens")),
)


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


def facade_names(package: str) -> dict[str, str]:
    """Return the names that a façade offers, each with the module that defines it."""
    listed = [
        (str(key.value), str(value.value))
        for node in ast.walk(trees()[package])
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
    ]
    # Each name with its module, or each module with its names.
    by_name = [
        (value, key) if key.rpartition(".")[2][0] == "_" else (key, value) for key, value in listed
    ]
    return {name: f"{package}.{module}" for names, module in by_name for name in names.split()}


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
    facades = {name: facade_names(name) for name in modules}
    found: dict[str, set[str]] = defaultdict(set)
    for name, tree in modules.items():
        for node in set(ast.walk(tree)) - type_checking_imports(tree):
            if not isinstance(node, ast.ImportFrom) or node.module not in modules:
                continue
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if full in modules else facades[node.module].get(alias.name)
                found[name].add(target or node.module)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: targets - {name} for name, targets in imports().items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as cycle:
        raise AssertionError(" → ".join(cycle.args[1])) from None
    assert "penstock.errors" in order


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
        listed = facade_names(package)
        typed = {
            alias.name
            for node in type_checking_imports(tree)
            if isinstance(node, ast.ImportFrom) and alias_is_public(node)
            for alias in node.names
        }
        if "facade(" in ast.unparse(tree) and package != "penstock._lazy":
            assert typed == listed.keys(), package


def alias_is_public(node: ast.ImportFrom) -> bool:
    return all(alias.name == alias.asname for alias in node.names)
