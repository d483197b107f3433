"""`Schema`: a tree of typed fields, as an encoder for `penstock.DataLoader`."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock._words import few
from penstock.batch import STAND_INS, Batch, BatchPosition, read_columns
from penstock.datasets import Source
from penstock.errors import OptionError
from penstock.schema._arrays import LeafArrays, drawn, leaf_arrays, refuse_odd
from penstock.schema._edits import SchemaEdits
from penstock.schema._field import hidden_field, leaf_field
from penstock.schema._learnt import Learnt
from penstock.schema._nodes import MASKED, PADDED, TensorKey, check_bool
from penstock.schema._observations import numbered_observations, pickled_observations
from penstock.schema._odd_values import OddRecords
from penstock.schema._plan import RECORDS, BatchColumns, planned, row_slots
from penstock.schema._splits import Strata, split_named
from penstock.schema._state import SchemaState
from penstock.schema._tree import Address, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.schema._field import LeafField
    from penstock.schema._nodes import Leaf, Node
    from penstock.schema._plan import ReadPlan
    from penstock.schema._statistics import ClassCounts, RunningStats
    from penstock.schema._vocabulary import Vocabulary

    LeafParts = dict[str, Any]
    """`LeafArrays` by address; of predictions from a stream, also pickled records."""

METADATA = str(TensorKey.metadata)

_WARNED_AFTER, _RAISED_AFTER = 20, 1000


class Schema(SchemaEdits, SchemaState):
    """A tree of typed fields: turns records into tensors with states, masks and targets.

    Args:
        fields: The nodes below the root.
        name: The first part of every address.
        strict: Whether a value of another structure than the tree expects, such as a text in place
            of a list, is a misfit. By default its slots are padded or null, and a warning says so.

    >>> from penstock.schema import Array, Category, Number
    >>> schema = Schema(Number("amount"), Array(Category("tag"), name="tags", max_length=2))
    >>> batch = schema.encode([{"amount": 2.5, "tags": [{"tag": "a"}]}, {}])
    >>> batch["record/amount"].state.tolist(), batch["record/tags/tag"].state.tolist()
    ([[0], [1]], [[[0, 2]], [[2, 2]]])
    """

    def __init__(self, *fields: Node, name: str = "record", strict: bool = False) -> None:
        check_bool("Schema", "strict", strict)
        self.hyperparameters = Tree.of(fields, name)
        self.strict = strict
        self.strata = Strata.train
        self.path = "auto"
        """"rows" reads record by record also what columns can give."""
        self.null_semantics = "slots"
        """"jmespath" drops nulls and evaluates queries over whole batches, as json2vec does."""
        self.mask_padding = True
        """Whether `p_mask` hides padded slots, too, so that a model learns where lists end."""
        self.sync_every: int | None = None
        """After how many batches of training all ranks `synchronize` by themselves."""
        self.syncs_early = False
        """Whether they do so after 1, 2, 4, 8 … batches, where `sync_every` is None. All ranks have
        to train in step."""
        self._learnt = Learnt(self.hyperparameters.requests)
        self._plan: ReadPlan | None = None
        self._source: Source | None = None
        self._empty: dict[Address, int] = {}
        """How many batches in a row had no value of a leaf."""
        self._warned: set[str] = set()
        """The leaves that warned of a value of another structure."""
        self._odd = OddRecords(self._warned)
        self._warns_of_no_labels = False
        """Whether the next batch does: a state may be loaded before the first one."""

    @classmethod
    def of(cls, tree: Tree, vocabularies: Mapping[Address, Vocabulary]) -> Schema:
        """Return a schema with a tree and vocabularies that are there already, and shared."""
        schema = Schema(*tree.root.fields, name=tree.root.name)
        schema._learnt.vocabularies.update(vocabularies)
        return schema

    def for_split(self, strata: str) -> Self:
        """Return the same schema for another split; both share their vocabularies.

        Only "train" learns labels. "predict" hides nothing, and does not read targets.
        """
        other = copy(self)
        other.strata = split_named(strata)
        other._plan, other._empty = None, {}  # noqa: SLF001 (of the same class)
        return other

    @property
    def interprocess_encoding_context(self) -> Mapping[Address, Vocabulary]:
        """The vocabularies of the leaves that have one."""
        return self._learnt.vocabularies

    @property
    def statistics(self) -> Mapping[Address, RunningStats]:
        """Count, mean and variance of the values of each number, as far as training saw them."""
        return self._learnt.statistics

    @property
    def counts(self) -> Mapping[Address, Mapping[str, ClassCounts]]:
        """How often each state of a leaf and each label of a category came in training.

        By address, then "state" or "content"; `weights` of each balances a loss.
        """
        return self._learnt.counts

    def configure_distributed(self, global_rank: int, world_size: int) -> None:
        """Say which rank this is; a loader does so when a pass begins.

        Only rank 0 adds labels. The others propose those that they see, and take them for unknown
        ones until `synchronize`.
        """
        if self._is_training:
            self._learnt.begin_pass(global_rank, world_size)
        else:
            self._learnt.configure(global_rank, world_size)
        self._warns_of_no_labels = self.is_predicting

    @property
    def is_new(self) -> bool:
        """Whether training begins with vocabularies of which none has a label."""
        vocabularies = self._learnt.vocabularies.values()
        return self._is_training and bool(vocabularies) and not any(map(len, vocabularies))

    def warn_of_no_labels(self) -> None:
        """Warn of leaves to which every label is unknown, as nothing was learnt or loaded."""
        vocabularies = self._learnt.vocabularies
        empty = [at for at in self._read() if at in vocabularies and not len(vocabularies[at])]
        if empty:
            warnings.warn(
                f"the vocabulary of {few(empty, 3)} is empty, so every label is unknown to "
                f"{self.strata}. Train or call fit_vocabulary before, or load what was learnt: by "
                "SchemaModel.load, by the state of a loader, or in Lightning by ckpt_path=, of a "
                "checkpoint that a data module of this class or a model with SchemaMixin saved.",
                stacklevel=2,
            )

    def synchronize(self, group: Any = None) -> None:
        """Give all ranks the same vocabularies, statistics and counts; every rank has to call it.

        Rank 0 adds what the others propose, in the order of ranks, and sends all labels to them.
        Without `torch.distributed`, and with one rank, nothing is done.

        Args:
            group: The process group of the ranks that share the data; by default all.
        """
        self._learnt.synchronize(group)

    # As an encoder.

    def bind(self, source: Any) -> tuple[Any, Self]:
        """Return the source and an encoder that knows which columns to read of it."""
        other = copy(self)
        known = source if isinstance(source, Source) else _numbered(source)
        other._plan = self._planned(known)  # noqa: SLF001 (of the same class)
        other._empty, other._source = {}, known  # noqa: SLF001 (likewise)
        home = getattr(source, "source", None) if known is None else known
        other._odd = OddRecords(self._warned, home)  # noqa: SLF001 (likewise)
        return source, other

    def _planned(self, source: Source | None) -> ReadPlan:
        return planned(
            self.hyperparameters, self._read(), source, path=self.path, nulls=self.null_semantics
        )

    def _read(self) -> list[Address]:
        """Return the leaves that are read of records."""
        leaves = self.hyperparameters.active_requests
        return [at for at, leaf in leaves.items() if not (leaf.target and self.is_predicting)]

    @property
    def is_predicting(self) -> bool:
        return self.strata == "predict"

    @property
    def _is_training(self) -> bool:
        return self.strata == "train"

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        return self._bound().fields

    @property
    def record_column(self) -> str | None:
        """The column with whole records, for queries of them, or predictions from a stream."""
        return RECORDS if self._brings_records or self._bound().needs_records else None

    @property
    def _brings_records(self) -> bool:
        """Whether predictions have records that cannot be read again by number."""
        return self.is_predicting and self._plan is not None and self._source is None

    @property
    def loose_fields(self) -> Mapping[str, pa.DataType]:
        """The columns to read in place of `fields` where records do not fit their types."""
        return self._bound().loose

    def _bound(self) -> ReadPlan:
        if self._plan is None:
            self._plan = self._planned(None)
        return self._plan

    def read_arrays(self, source: Source, where: BatchPosition) -> LeafParts:
        """Return the arrays of records of a source that this schema is bound to."""
        given = (self.fields, self.loose_fields, self.record_column)
        return self.arrays(read_columns(source, where.ids, *given), where)

    def arrays(self, columns: pa.RecordBatch, where: BatchPosition) -> LeafParts:
        marks = (columns.schema.metadata or {}).get(STAND_INS)
        if marks is not None:
            there = ~np.frombuffer(marks, np.bool_)
            rest = replace(where, positions=where.positions[there], ids=where.ids[there], bins=None)
            parts = self._arrays_of(columns.filter(pa.array(there)), rest)
            arrays: LeafParts = {address: leaf.spread(there) for address, leaf in parts.items()}
        else:
            arrays = self._arrays_of(columns, where)
        if self._brings_records:
            arrays[METADATA] = columns[RECORDS].to_pylist()
        return arrays

    def _arrays_of(self, columns: pa.RecordBatch, where: BatchPosition) -> LeafParts:
        batch, plan = BatchColumns(columns), self._bound()
        return self._arrays(where, lambda address: batch.placed(plan.leaves[address]))

    def _arrays(self, where: BatchPosition, placed: Callable[[Address], Any]) -> LeafParts:
        found: LeafParts = {}
        leaves, plan = self.hyperparameters.active_requests, self._bound()
        for address in plan.leaves:
            leaf, axes = leaves[address], plan.leaves[address].axes
            made = leaf_arrays(leaf, address, axes, where, partial(placed, address))
            if self.strict:
                refuse_odd(made, address, where)
            if not self.is_predicting:
                made = drawn(made, leaf, address, where, self.strata)
                if made.masked is not None and not self.mask_padding:
                    made.masked[made.state == PADDED] = False
            found[address] = made
        return found

    def note_odd(
        self, arrays: LeafParts, where: BatchPosition, valid: NDArray[np.bool_] | None = None
    ) -> None:
        """Count, and warn of, values of another structure than the tree expects."""
        odd = {at: one.odd for at, one in arrays.items() if at != METADATA and one.odd}
        if odd:
            self._odd.add(odd, where.ids, valid)

    def tally(self) -> dict[str, float]:
        """Return what a loader adds to its `stats()`."""
        return {"odd_records": float(self._odd.count)}

    @property
    def part(self) -> Callable[[LeafParts, int, int], LeafParts]:
        if self.null_semantics == "jmespath":
            raise AttributeError("part: a query sees one batch, so batches are not made together")
        return _part

    def batch(
        self,
        arrays: LeafParts,
        where: BatchPosition,
        valid: NDArray[np.bool_] | None = None,
    ) -> Batch:
        tree, count = self.hyperparameters, len(where.ids)
        self.note_odd(arrays, where, valid)
        if self._is_training:
            self._count_batch()
        if self._warns_of_no_labels:
            self._warns_of_no_labels = False
            self.warn_of_no_labels()
        made: dict[str, Any] = {}
        for address, leaf in tree.active_requests.items():
            if address in arrays:
                made[address] = self._field(leaf, address, arrays[address], valid)
            else:
                made[address] = hidden_field(leaf, (count, *tree.shapes[address]))
        if METADATA in arrays:
            made[METADATA] = pickled_observations(arrays[METADATA], valid)
        elif self.is_predicting and self._source is not None:
            made[METADATA] = numbered_observations(self._source, where.ids, valid)
        return Batch(made, where.ids, valid)

    def _count_batch(self) -> None:
        learnt, every = self._learnt, self.sync_every
        rest = learnt.batches % every if every else learnt.batches & (learnt.batches - 1)
        if learnt.batches and not rest and (every or self.syncs_early):
            learnt.synchronize(None)
        learnt.batches += 1

    def _field(
        self, leaf: Leaf, address: Address, arrays: LeafArrays, valid: NDArray[np.bool_] | None
    ) -> LeafField:
        if valid is None or valid.any():  # What cannot be read says nothing of queries.
            self._watch(address, arrays)
        learnt, learns = self._learnt, self._is_training
        words = learnt.vocabularies.get(address)
        content = leaf.finished(arrays, words, learn=learns, valid=valid)
        if learns:
            rows = slice(None) if valid is None else valid
            learnt.count(address, arrays.state[rows], content.get("", arrays.state)[rows])
        state, selected = arrays.state.astype(np.int64), arrays.masked
        blank = None if valid is None else state == MASKED  # A bad record is hidden by itself.
        if blank is not None:
            for part in content.values():
                part[blank] = leaf.hidden
        if leaf.target and not self.is_predicting:
            return hidden_field(leaf, state.shape, (state, content), blank)
        if arrays.pruned is not None:
            rows = arrays.pruned.reshape(-1, *[1] * (state.ndim - 1))
            selected = np.broadcast_to(rows, state.shape) if selected is None else selected | rows
        if selected is None:
            return leaf_field(state, content, np.zeros(state.shape, np.bool_), None)
        before = (state.copy(), {name: part.copy() for name, part in content.items()})
        state[selected] = MASKED
        for part in content.values():
            part[selected] = leaf.hidden
        return leaf_field(state, content, np.ascontiguousarray(selected), before)

    def _watch(self, address: Address, arrays: LeafArrays) -> None:
        """Warn of a leaf that never has a value: its query may lead nowhere."""
        if not arrays.state.all() or not arrays.state.size:  # The state of a value is 0.
            self._empty[address] = 0
            return
        self._empty[address] = empty = self._empty.get(address, 0) + 1
        query = self.hyperparameters.queries[address].text
        text = f"{address}: {query} found no value in {empty:,} batches in a row"
        if empty == _WARNED_AFTER:
            warnings.warn(f"{text}. Does it lead to the field?", stacklevel=2)
        if empty >= _RAISED_AFTER:
            raise OptionError(f"{text}.", remedy="Correct the query, or set active=False.")

    def describe(self) -> str:
        leaves, slow = self.hyperparameters.active_requests, self._bound().walked
        way = f"; read record by record: {', '.join(slow)}" if slow else "; read by columns"
        return f"a schema of {len(leaves)} leaves for {self.strata}{way}"

    # Without a loader.

    def encode(
        self,
        records: Sequence[Any],
        strata: str = "predict",
        preprocess: Callable[[Any], dict[str, Any]] | None = None,
    ) -> Batch:
        """Return the batch of records: dicts, or lists of one dict each.

        Args:
            records: The records; with "predict", the batch has them as `metadata`.
            strata: The split; only "train" learns labels.
            preprocess: Applied to each record; returns a dict.
        """
        if (split := split_named(strata)) is not self.strata:
            return self.for_split(split).encode(records, split, preprocess)
        rows = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in records]
        if preprocess is not None:
            rows = list(map(preprocess, rows))
        for number, one in enumerate(rows):
            if not isinstance(one, dict):
                what = "a record" if preprocess is None else "what preprocess returns"
                raise TypeError(f"encode: {what} is a dict, not {one!r} (number {number}).")
        numbers = np.arange(len(rows))
        where = BatchPosition(0, 0, numbers, numbers)
        leaves = self._bound().leaves
        arrays = self._arrays(where, lambda at: row_slots(rows, leaves[at].query, leaves[at].axes))
        batch = self.batch(arrays, where)
        if self.is_predicting:
            batch = Batch({**batch, METADATA: [[one] for one in rows]}, batch.ids, batch.valid)
        return batch


def _numbered(stream: Any) -> Source | None:
    """Return the source whose record numbers a stream yields, if it hands out these records."""
    return None if getattr(stream, "is_mapped", True) else stream.source


def _part(arrays: LeafParts, start: int, stop: int) -> LeafParts:
    return {
        address: one[start:stop] if isinstance(one, list) else one.part(start, stop)
        for address, one in arrays.items()
    }
