"""What a loader decided, and why: the text of `explain()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._redact import without_secrets
from penstock._words import counted

if TYPE_CHECKING:
    from penstock.loading._feed import Feed, Point
    from penstock.loading._ranks import Ranks
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Sharing
    from penstock.loading.engines._choice import Workers


class Decisions(dict[str, str]):
    """Decisions by name; prints as a list."""

    def __init__(self, **decisions: str) -> None:
        super().__init__((name, without_secrets(text)) for name, text in decisions.items())

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.items())


def decided(  # noqa: PLR0913, PLR0917 (all that decides)
    feed: Feed, point: Point, recipe: Recipe, ranks: Ranks, sharing: Sharing, workers: Workers
) -> Decisions:
    """Return what was decided for a pass that begins at a point."""
    found = feed.describe(point)
    batches = (
        f"{counted(sharing.batch_size, 'record')} a batch, {sharing.global_batch_size:,} a step "
        "over all ranks"
        if sharing.plan is None
        else f"batches by the plan {sharing.plan.name!r}, one a rank and step"
    )
    return Decisions(
        source=found.pop("source"),
        order=found.pop("order"),
        batch=recipe.what,
        sharing=f"rank {ranks.rank} of {ranks.world_size} ({ranks.why}), {batches}",
        workers=workers.describe(),
        **found,
    )
