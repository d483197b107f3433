"""Parquet files: footers, and the columns of row groups."""

from penstock.index.parquet._footers import Footer as Footer
from penstock.index.parquet._footers import UnifiedSchema as UnifiedSchema
from penstock.index.parquet._footers import read_footer as read_footer
from penstock.index.parquet._footers import read_footers as read_footers
from penstock.index.parquet._groups import ranges_of as ranges_of
from penstock.index.parquet._groups import read_group as read_group
