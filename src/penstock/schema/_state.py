"""A schema as a state: its tree, and what the leaves have learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema._documents import document_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.schema._learnt import Learnt, State
    from penstock.schema._tree import Tree

_VERSION = 1
_OF_TREE = ("version", "tree")
_BY_LEAF = ("vocabularies", "proposals", "statistics", "counts")


class SchemaState:
    """What a schema offers to those who save it and load it."""

    hyperparameters: Tree
    _learnt: Learnt
    strict_loading: bool = True
    """Whether a state of another tree is refused; else the leaves that both have take what was
    learnt, and the others stay as they are."""

    def mark(self) -> Any:
        """Return a small value of which `state_dict` makes the present state later."""
        return self._learnt.mark()

    def state_dict(self, mark: Any = None) -> dict[str, Any]:
        """Return the tree, vocabularies, statistics and counts, in plain JSON types."""
        return {**self._tree_state(), **self._learnt.state_dict(mark)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hold the vocabularies, statistics and counts of a saved state; see `strict_loading`."""
        if state.get("version", _VERSION) != _VERSION:
            raise OptionError(
                f"the state of the schema has version {state['version']!r}, and this release "
                f"knows {_VERSION}. A newer Penstock wrote it: install that one or a later one."
            )
        states = state.get("ranks", [state])
        if "tree" in state:
            then = dict(_leaf_kinds(state["tree"]))
            now = dict(_leaf_kinds(self._tree_state()["tree"]))
        else:  # Of a release that did not keep it.
            then, now = _lessons(states[0]), _lessons(vars(self._learnt))
        if then != now:
            if self.strict_loading:
                raise _mismatch(then, now)
            same = then.items() & now.items()
            states = [_part(rank_state, {at for at, _ in same}) for rank_state in states]
        self._learnt.load_state_dict({"ranks": states} if "ranks" in state else states[0])

    def merged(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return one state of those of all ranks, in their order.

        As many ranks continue from it as they were; another number of them as after `synchronize`.
        """
        learnt = [
            {key: part for key, part in each.items() if key not in _OF_TREE} for each in states
        ]
        return {**{key: states[0][key] for key in _OF_TREE if key in states[0]}, "ranks": learnt}

    def gathered_state(self, group: Any = None) -> dict[str, Any]:
        """Return what all ranks learnt as one state, on rank 0; every rank has to call it.

        It is the state that `synchronize` would give to all. Others than rank 0 return their own.
        """
        learnt = self._learnt.gathered(group)
        return self.state_dict() if learnt is None else {**self._tree_state(), **learnt}

    def _tree_state(self) -> dict[str, Any]:
        tree = document_of(self.hyperparameters.root, is_exact=False)
        return {"version": _VERSION, "tree": tree}


def _leaf_kinds(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the address and the kind of each leaf of a tree."""
    address = f"{above}{document['name']}"
    if "fields" not in document:
        yield address, document["kind"]
    for child in document.get("fields", ()):
        yield from _leaf_kinds(child, f"{address}/")


def _lessons(learnt: Mapping[str, Any]) -> dict[str, str]:
    """Return what each leaf learns, by address."""
    labels, numbers = learnt["vocabularies"], learnt["statistics"]
    return {
        str(at): "number" if at in numbers else "leaf with labels" if at in labels else "other leaf"
        for at in learnt["counts"]
    }


def _mismatch(then: Mapping[str, str], now: Mapping[str, str]) -> SchemaMismatchError:
    facts = [
        *(f"{at} ({kind}) is only in the state" for at, kind in then.items() if at not in now),
        *(f"{at} ({kind}) is only in this schema" for at, kind in now.items() if at not in then),
        *(
            f"{at} was a {kind} and is a {now[at]}"
            for at, kind in then.items()
            if now.get(at, kind) != kind
        ),
    ]
    return SchemaMismatchError(
        f"the state is of another tree: {'; '.join(facts)}.",
        remedy="Give the schema the tree of the state before it is loaded (in the model's "
        "__init__, or by extend, delete and update), or set strict_loading = False: leaves of the "
        "same address and kind then take what was learnt, and the others begin anew.",
    )


def _part(state: State, addresses: set[str]) -> dict[str, Any]:
    """Return what a state has of some leaves."""
    parts = {
        part: {at: lesson for at, lesson in state[part].items() if at in addresses}
        for part in _BY_LEAF
    }
    return {**state, **parts, "frozen": [at for at in state["frozen"] if at in addresses]}
