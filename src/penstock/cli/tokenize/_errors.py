"""What goes wrong while text is tokenised, in the words of the command line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import IndexExistsError, OptionError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.tokenize._parts import PartsLeft

_WORDS = {
    'on_error="skip"': "--on-error skip",
    "overwrite=True (--overwrite)": "--overwrite",
    "overwrite=True": "--overwrite",
    "text_key=": "--text-key FIELD",
    "token_dtype=np.": "--dtype ",
    "token_dtype=": "--dtype ",
    "eos_idx=": "--eos ",
    "pad_idx=": "--pad ",
    "sample_size=": "--sample-size ",
    "num_workers=": "--workers ",
    "output_base_path= (for tokens of a bucket": "another DST (for one in a bucket",
    "another folder: output_base_path=": "another DST",
    "output_base_path=": "another DST",
    "it another place: index= (--index), or the variable PENSTOCK_CACHE for the cache": (
        "another DST"
    ),
    " for an index:": " for DST:",
}
"""What errors call arguments, and how the command line does; the longer ones first."""


@contextmanager
def in_options(left: PartsLeft) -> Iterator[None]:
    """Tell errors in the words of the command line, and of an interrupted run what is kept."""
    try:
        yield
    except (IndexExistsError, FileExistsError) as failure:
        raise OptionError(_as_options(str(failure))) from None
    except PenstockError as failure:
        failure.args = (_as_options(str(failure)),)
        _notes_as_options(failure)
        raise
    except KeyboardInterrupt as failure:
        failure.add_note(left.told())
        raise
    except Exception as failure:
        _notes_as_options(failure)
        raise


def _as_options(text: str) -> str:
    """Return what an error says, in the words of the command line."""
    for argument, option in _WORDS.items():
        text = text.replace(argument, option)
    return text


def _notes_as_options(failure: Exception) -> None:
    if notes := getattr(failure, "__notes__", None):
        notes[:] = map(_as_options, notes)
