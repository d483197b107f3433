"""A mixture as the source of a loader: its records, its order, and what a resume may change."""

from __future__ import annotations

import logging
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets import Concatenated, Source, as_stream, named_sources
from penstock.datasets import open as open_source
from penstock.errors import OptionError
from penstock.loading._feed import HasFeed
from penstock.loading._order_choice import OrderChoice, check_shuffle, chosen_order
from penstock.order import Mixture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.loading._feed import FeedOptions
    from penstock.order import Cursor

_log = logging.getLogger("penstock.loading")


def opened(source: Any) -> Any:  # noqa: ANN401 (anything that a loader takes)
    """Return the records that a loader goes over: a source, or what has a feed of its own."""
    if isinstance(source, Mixture):
        return mixed_source(source)
    if isinstance(source, Source | HasFeed):
        return source
    return as_stream(source) or open_source(source)


def mixed_source(mixture: Mixture) -> Source:
    """Return the records of all sources of a mixture, one source after the other."""
    sources = []
    for name, source in mixture.sources.items():
        if isinstance(source, int | np.integer):
            raise OptionError(
                f"source {name!r} of the mixture is {source}: a loader needs the records, not "
                "their number. Give what penstock.open returns."
            )
        sources.append(source if isinstance(source, Source) else open_source(source))
    return named_sources(sources, mixture.names)


def source_of(facts: Mapping[str, Any], ids: Any) -> NDArray[np.str_]:  # noqa: ANN401 (or a tensor)
    """Return the name of the source of a mixture that each record comes from."""
    if "names" not in facts:
        raise OptionError("only the records of a Mixture come from sources with names.")
    ends = np.cumsum(facts["lengths"])
    return np.array(facts["names"])[np.searchsorted(ends, np.asarray(ids), side="right")]


def seed_of(options: FeedOptions) -> int:
    """Return the seed of a run: the mixture's own, where it has one, or the loader's."""
    own = None if options.mixture is None else options.mixture.seed
    if own is not None and options.seed not in (0, own):
        raise OptionError(
            f"the mixture has seed={own}, and the loader seed={options.seed}: give one of them."
        )
    return operator.index(options.seed if own is None else own)


@dataclass(frozen=True)
class MixtureChoice(OrderChoice):
    """The order of a mixture."""

    mixture: Mixture | None = None

    @classmethod
    def of(cls, source: Source, options: FeedOptions) -> MixtureChoice:
        """Return the order of the mixture of some options over its records."""
        mixture, shuffle = options.mixture, options.shuffle
        check_shuffle(shuffle)
        if mixture is None or not isinstance(source, Concatenated) or not source.names:
            raise OptionError(
                "the encoder's `bind` returned another source than that of the mixture, whose "
                "records it must keep apart. Return the source as it is."
            )
        if options.plan is not None and mixture.stop == "repeat":
            raise OptionError("stop='repeat': no plan can cut a mixture that never ends.")
        # Those that can only be read in order are shuffled through columns.
        kinds = {name: str(shuffle) for name in mixture.names}
        if isinstance(shuffle, bool):
            own = [
                chosen_order(one, shuffle=True, through_columns=True)[0] for one in source.sources
            ]
            kinds = dict(zip(mixture.names, own, strict=True))
        facts = mixture.facts(source.sizes, list(kinds.values()))
        return cls("mixture", _why(mixture, kinds), facts, mixture)

    def as_it_was(self, point: Cursor, source: Source) -> Source:
        lengths = point.own.get("lengths")
        assert isinstance(source, Concatenated)  # noqa: S101 (checked by `of`)
        if lengths == source.sizes or not isinstance(lengths, list):
            return source
        if [*map(type, lengths)] != [int] * len(source.sizes):
            return source
        before = source.cut(lengths)
        has_grown = all(0 < old <= new for old, new in zip(lengths, source.sizes, strict=True))
        if not has_grown or not before.was(point.fingerprint, point.length):
            return source
        return before

    def continued(self, point: Cursor, source: Source, changed: str | None) -> Mapping[str, Any]:
        self.check_kind(point)
        assert self.mixture is not None  # noqa: S101 (given by `of`)
        facts = self.mixture.continued(point.own, point.epoch, point.position)
        if facts["weights"] != point.own["weights"]:
            if point.plan is not None and point.position:
                raise OptionError(
                    "the mixture has other weights than the state, whose epoch a plan has cut into "
                    f"batches already: it stands at batch {point.position:,}. Give the weights of "
                    "the state, and others at the end of an epoch."
                )
            where = f"position {point.position:,} of epoch {point.epoch}"
            _log.info("the mixture has other weights from %s on", where)
        if changed is None:
            facts |= {what: self.own[what] for what in ("lengths", "orders")}
        return facts


def _why(mixture: Mixture, kinds: Mapping[str, str]) -> str:
    blocks = [name for name, kind in kinds.items() if kind == "block"]
    by_blocks = f" ({', '.join(blocks)} by blocks)" if blocks else ""
    return (
        f"{mixture.shares()}; stop={mixture.stop!r}; each source in a shuffle of its own"
        f"{by_blocks}, whatever shuffle says"
    )
