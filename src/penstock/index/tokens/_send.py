"""Whether work can be sent to other processes."""

from __future__ import annotations

import io
import pickle
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.index.tokens._documents import TokenWork

_SCRIPTS = {"__main__", "__mp_main__"}


class Sent(NamedTuple):
    """Work on its way."""

    obstacle: str
    """Why other processes cannot have it; nothing if they can."""


def sent(work: TokenWork) -> Sent:
    """Return what there is to say of sending work."""
    pickler = _Pickler(io.BytesIO())
    try:
        pickler.dump(work)
    except Exception as why:  # noqa: BLE001 (a tokenizer may refuse in any way)
        return Sent(f"it does not pickle ({type(why).__name__}: {why})")
    if pickler.stuck:
        return Sent(
            f"{pickler.stuck[0]} is defined in the script itself, which worker processes do not "
            "run; define it in a module that it imports",
        )
    return Sent("")


class _Pickler(pickle.Pickler):
    """Notes what is pickled by a name that other processes do not know."""

    def __init__(self, out: io.BytesIO) -> None:
        super().__init__(out)
        self.stuck: list[str] = []

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401 (what pickle expects)
        if isinstance(obj, type | FunctionType):
            module = sys.modules.get(obj.__module__)
            if obj.__module__ in _SCRIPTS or getattr(module, "__spec__", None) is None:
                self.stuck.append(obj.__qualname__)
        return NotImplemented
