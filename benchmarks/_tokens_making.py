"""Text into token folders: beside the tokenizer's own calls, and beside peers."""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from _load_peers import LOADERS
from _peers import python_if_possible
from _rounds import Contender, Side, run_rounds
from _table import table
from _tokens_library import LIBRARIES
from _tokens_text import write_documents, write_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import ExitStack

KEY = "tokenise"
MUST_REACH = 1.5
_MOST_ROUNDS = 3
_WARM_UP = 200
"""Documents: enough for imports, and for what a tokenizer remembers of frequent words."""
_SAME = tuple(f"{name}=={importlib.metadata.version(name)}" for name in LIBRARIES)
_LITDATA = next(loader for loader in LOADERS if loader.program == "_load_litdata.py")
_FORAGER_NAME, _LITDATA_NAME = "data-forager 0.2.0", "LitData 0.2.76 optimize(), 2 processes"
_PEERS = {
    _FORAGER_NAME: (
        "_tokens_make_forager.py",
        "tokens-forager",
        ("data-forager==0.2.0", *_SAME),
        0,
    ),
    _LITDATA_NAME: (
        "_tokens_make_litdata.py",
        "tokens-litdata",
        (*_LITDATA.requirements, *_SAME),
        2,
    ),
}
"""Program, environment, what is in it, and processes."""


class MakingRow(TypedDict):
    """One line of the table."""

    key: str
    library: str
    work: str
    reference: str
    ratio: float
    median_ratio: float
    least_ratio: float
    most_ratio: float
    must_reach: float | None
    reached: bool | None


@dataclass
class Pass(Contender):
    """A side that goes through all documents; its first turn, which does not count, through few."""

    warm: dict[str, object] = field(default_factory=dict)
    """What is different in that turn."""
    most: int = _MOST_ROUNDS
    """Rounds that it takes part in."""

    def ask(self) -> tuple[float, int]:
        """Work once."""
        few, self.warm = self.warm, {}
        arguments = {**self.arguments, **few}
        if self.before:
            self.side.ask(self.before, **arguments)
        return self.side.ask(self.work, **arguments)

    def run(self) -> int:
        """Measure once, if it is still in; return how many tokens there were."""
        return super().run() if len(self.seconds) < self.most else 0


@dataclass
class Making:
    """Where and how token folders are made."""

    stack: ExitStack
    folder: Path
    documents: int
    rounds: int

    def __post_init__(self) -> None:
        self._texts, self._few = self.folder / "texts", self.folder / "few-texts"
        self._tokenizer = self.folder / "tokenizer.json"
        write_documents(self._texts, self.documents)
        write_documents(self._few, min(self.documents, _WARM_UP))
        write_tokenizer(self._tokenizer, self.documents)
        self._bare = self.stack.enter_context(Side("_tokens_make_bare.py"))
        self._ours = self.stack.enter_context(Side("_tokens_make_ours.py"))
        self._peers = dict(self._peer_sides())
        self._found: set[str] = set()
        self.tokens = 0
        self.references: list[str] = []
        """What one core does, in million tokens a second."""

    def _peer_sides(self) -> Iterator[tuple[str, tuple[Side, int]]]:
        for name, (program, environment, requirements, workers) in _PEERS.items():
            python = python_if_possible(environment, *requirements)
            if python is not None:
                yield name, (self.stack.enter_context(Side(program, python)), workers)

    def measure(self) -> Iterator[MakingRow]:
        """Let all work in turn, one library after the other; yield one row a ratio."""
        for library in LIBRARIES:
            print(f"measuring with {library}", file=sys.stderr)
            yield from self._with(library)

    def _with(self, library: str) -> Iterator[MakingRow]:
        how = {"tokenizer": str(self._tokenizer), "library": library}
        self._bare.ask("prepare", source=str(self._texts), **how)
        self._bare.ask("prepare", source=str(self._few), **how)
        _, self.tokens = self._bare.ask("many", source=str(self._texts), **how)
        _, calls = self._bare.ask("calls", library=library)
        ones = {call: self._pass(self._bare, "one", call=call, **how) for call in calls}
        many = self._pass(self._bare, "many", **how)
        two, none = (
            self._made("ours-2", self._ours, 2, how),
            self._made("ours-0", self._ours, 0, how),
        )
        peers = {
            name: self._made(name, side, workers, how, rounds=1)
            for name, (side, workers) in self._peers.items()
        }
        run_rounds([*ones.values(), many, two, none, *peers.values()], self.rounds, self.tokens)
        self._check([two, none, *(peers[name] for name in peers if name == _FORAGER_NAME)])

        fastest = min(ones, key=lambda call: min(ones[call].seconds))
        one = ones[fastest]
        rate = self.tokens / min(one.seconds) / 1e6
        self.references.append(f"{library} {rate:.2f} ({fastest})")
        alone = f"{fastest}, one core, document by document"
        work = "ours, 2 processes"
        yield self._row(library, work, two, alone, one, MUST_REACH)
        yield self._row(library, "ours, no processes", none, alone, one)
        batch = "its own call for many, 2 threads"
        yield self._row(library, batch, many, alone, one)
        yield self._row(library, work, two, batch, many)
        for name, peer in peers.items():
            yield self._row(library, work, two, name, peer)

    def _pass(self, side: Side, work: str, *, most: int = _MOST_ROUNDS, **how: object) -> Pass:
        warm = {"source": str(self._few)}
        return Pass(side, work, {"source": str(self._texts), **how}, warm=warm, most=most)

    def _made(
        self,
        name: str,
        side: Side,
        workers: int,
        how: dict[str, str],
        *,
        rounds: int = _MOST_ROUNDS,
    ) -> Pass:
        target = str(self.folder / "".join(filter(str.isalnum, f"made {name} {how['library']}")))
        made = self._pass(side, "make", target=target, workers=workers, most=rounds, **how)
        made.before = "clear"
        return made

    def _check(self, made: Iterable[Pass]) -> None:
        """Raise if token files are not the same, byte for byte, with whichever library."""
        self._found |= {_digest(Path(str(one.arguments["target"]))) for one in made}
        if len(self._found) > 1:
            raise RuntimeError("token files of the same text differ")

    def _row(  # noqa: PLR0913, PLR0917
        self,
        library: str,
        work: str,
        mine: Contender,
        reference: str,
        its: Contender,
        must: float | None = None,
    ) -> MakingRow:
        ratio = mine.ratio_to(its)
        return MakingRow(
            key=KEY,
            library=library,
            work=work,
            reference=reference,
            ratio=ratio.best,
            median_ratio=ratio.median,
            least_ratio=ratio.least,
            most_ratio=ratio.most,
            must_reach=must,
            reached=None if must is None else round(ratio.best, 2) >= must,
        )


def _digest(folder: Path) -> str:
    found = hashlib.blake2b()
    for file in sorted((folder / "tokenized-samples").glob("*.bin")):
        found.update(file.read_bytes())
    return found.hexdigest()


def making_table(rows: Iterable[MakingRow]) -> str:
    """Return the table of all ratios; rates differ from machine to machine and are not in it."""
    head = [
        "tokenizer", "work", "against", "ratio", "median (least – most)", "must reach", "reached",
    ]  # fmt: skip
    return table(head, map(_cells, rows))


def _cells(row: MakingRow) -> list[str]:
    return [
        row["library"],
        row["work"],
        row["reference"],
        f"{row['ratio']:.2f}",
        f"{row['median_ratio']:.2f} ({row['least_ratio']:.2f} – {row['most_ratio']:.2f})",
        "" if row["must_reach"] is None else f"{row['must_reach']:.2f}",
        {True: "yes", False: "no", None: ""}[row["reached"]],
    ]
