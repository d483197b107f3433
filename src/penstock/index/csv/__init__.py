"""CSV files: where rows begin and end, and the types of columns."""

from penstock.index.csv._dialect import DELIMITERS as DELIMITERS
from penstock.index.csv._header import warn_of_names as warn_of_names
from penstock.index.csv._quotes import MISQUOTED as MISQUOTED
from penstock.index.csv._quotes import find_misquoted as find_misquoted
from penstock.index.csv._rows import line_ends as line_ends
from penstock.index.csv._types import INTEGER as INTEGER
from penstock.index.csv._types import Dialect as Dialect
from penstock.index.csv._types import check_columns as check_columns
from penstock.index.csv._types import read_options as read_options
from penstock.index.csv._types import type_of as type_of
from penstock.index.csv._types import type_over_files as type_over_files
from penstock.index.csv._types import whole_rows as whole_rows
from penstock.index.csv._types import with_line_end as with_line_end
