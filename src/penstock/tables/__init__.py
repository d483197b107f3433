"""Files of tables: what their heads say, and the rows of their units."""

from typing import TYPE_CHECKING

from penstock._lazy import facade

if TYPE_CHECKING:
    from penstock.tables._head import TableHead as TableHead
    from penstock.tables._head import head_of
    from penstock.tables._hive import partitions_of
    from penstock.tables._schemas import CommonColumns, UnifiedSchema

__all__, __getattr__, __dir__ = facade(
    __name__,
    {
        "_head": "TableHead",
    },
    for_rooms={
        "_head": "head_of",
        "_hive": "partitions_of",
        "_schemas": "CommonColumns UnifiedSchema",
    },
)
