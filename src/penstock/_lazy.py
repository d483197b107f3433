"""Façades: public names that load their module when they are first used."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from penstock._redact import mask_in_logs
from penstock.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def facade(
    package: str, names: Mapping[str, str], for_rooms: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` for a package whose names load lazily.

    `names` has the modules, relative to the package, and the public names of each; `for_rooms` has
    names that only other rooms use, which are not part of `__all__`.
    """
    if package != "penstock":
        mask_in_logs(package)  # A logger has the name of its room.
    public = sorted(name for some in names.values() for name in some.split())
    listed = [*names.items(), *(for_rooms or {}).items()]
    modules = {name: module for module, some in listed for name in some.split()}

    def load(name: str) -> object:
        if name not in modules:
            module = sys.modules[package]
            offers = ", ".join(vars(module).get("__all__", public))
            message = f"module {package!r} has no attribute {name!r}; it offers {offers}"
            raise AttributeError(message, name=name, obj=module)
        value = getattr(importlib.import_module(f".{modules[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    return public, load, listing


def imported(module: str) -> ModuleType | None:
    """Return a module that is imported; None before, and while another thread imports it."""
    known = sys.modules.get(module)
    is_half = getattr(getattr(known, "__spec__", None), "_initializing", False)
    return None if is_half else known


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which `pip install` brings it."""
    if (known := imported(module)) is not None:
        return known  # Asked for every batch: Python's own way takes several times as long.
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        message = (
            f"{purpose} needs the package {module.partition('.')[0]!r}, which is not installed. "
            f"Install it with: pip install 'penstock[{extra}]'"
        )
        raise MissingExtraError(message) from None
