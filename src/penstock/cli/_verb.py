"""The base of all verbs: exit codes, errors and warnings on stderr, shared options."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from penstock.cli._main import INTERRUPTED, Terminated
from penstock.cli._terminal import Report, echo
from penstock.errors import MalformedLineError, OptionError, PenstockError
from penstock.storage import StorageOptions

F = TypeVar("F", bound="Callable[..., Any]")

FINE, FINDINGS, USAGE, FAILED = range(4)
"""The exit codes."""
SHUFFLES: dict[str, bool | Literal["full", "block"]] = {
    "true": True,
    "full": "full",
    "block": "block",
    "none": False,
}
COUNT, FROM_0 = click.IntRange(min=1), click.IntRange(min=0)
_PACKAGE = Path(__file__).parents[1]
_SHARED = ("path", "folder", "storage_options", "as_json")


@dataclass(frozen=True, slots=True)
class VerbCall:
    """The parameters that verbs share."""

    path: str
    folder: str | None
    """Where the index is, if not in its usual place."""
    options: StorageOptions
    as_json: bool

    def finding(self, text: object) -> int:
        """Print what a verb found on stderr, without secrets, and return the exit code."""
        echo(f"penstock: {self.options.redact(str(text))}", err=True)
        return FINDINGS


class Verb(click.Command):
    """A command whose function returns an exit code or a report; errors become lines on stderr."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the remedy when the shell has expanded a pattern."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as failure:
            if "extra argument" not in failure.message:
                raise
            remedy = "A pattern of file names needs quotes: 'logs/*.jsonl'."
            raise click.UsageError(f"{failure.message}. {remedy}", ctx) from None

    def invoke(self, ctx: click.Context) -> None:
        """Run the verb and exit with its code."""
        options: StorageOptions = ctx.params.get("storage_options") or StorageOptions()
        code = FINE
        log, lines = logging.getLogger("penstock"), _StderrHandler(options)
        log.addHandler(lines)
        try:
            found = super().invoke(ctx)
            code = found.code if isinstance(found, Report) else found or FINE
            if isinstance(found, Report):
                found.print(as_json=ctx.params["as_json"])
        except BrokenPipeError:
            silence_stdout()  # The reader has seen enough.
        except (click.ClickException, click.exceptions.Exit):
            raise
        except OptionError as failure:
            raise click.UsageError(options.redact(str(failure)), ctx) from None
        except (Exception, KeyboardInterrupt) as failure:  # noqa: BLE001 (each becomes an exit code)
            code = _show_error(failure, options)
        finally:
            log.removeHandler(lines)
        ctx.exit(code)


def silence_stdout() -> None:
    """Discard what is still buffered, so that the interpreter does not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_error(failure: BaseException, options: StorageOptions) -> int:
    """Print an error on stderr and return the exit code."""
    text, code = str(failure) or type(failure).__name__, FAILED
    if isinstance(failure, Terminated):
        text, code = "terminated", failure.code
    elif isinstance(failure, KeyboardInterrupt):
        text, code = "interrupted", INTERRUPTED
    elif isinstance(failure, MalformedLineError) or hasattr(failure, "record"):
        code = FINDINGS
    elif isinstance(failure, PenstockError):
        pass
    elif isinstance(failure, OSError):
        text = ": ".join(str(part) for part in (failure.filename, failure.strerror) if part) or text
    else:
        text = f"unexpected {type(failure).__name__}: {text} ({_place(failure)}). Please report it."
    for line in (text, *getattr(failure, "__notes__", ())):
        echo(f"penstock: {options.redact(line)}", err=True)
    return code


def _place(failure: BaseException) -> str:
    """Return the last line of Penstock that an error passed through."""
    frames = traceback.extract_tb(failure.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    return f"{Path(ours[-1].filename).relative_to(_PACKAGE)}:{ours[-1].lineno}" if ours else "?"


class _StderrHandler(logging.Handler):
    def __init__(self, options: StorageOptions) -> None:
        super().__init__(logging.WARNING)
        self._options = options

    def emit(self, record: logging.LogRecord) -> None:
        text = self._options.redact(record.getMessage())
        echo(f"penstock: {record.levelname.lower()}: {text}", err=True)


def verb(
    *lines: str,
    path: bool = True,
    index: bool = False,
    reads: bool | None = None,
    cls: type[Verb] = Verb,
) -> Callable[[Callable[..., int | Report]], click.Command]:
    """Make a function a verb: PATH comes before its own parameters, the shared options after them.

    `lines` are examples for the help; `index` adds `--index FOLDER`; `reads` adds the options of
    formats, which `look_at` of `_paths.py` takes: by default where there is a PATH. The function
    has the name of the verb, and receives a `VerbCall` and its own parameters by keyword. It
    returns a report to print, or one of the exit codes above; an error that it raises becomes a
    line on stderr and an exit code.
    """

    def decorate(function: Callable[..., int | Report]) -> click.Command:
        own = vars(function).pop("__click_params__", [])

        @wraps(function)
        def called(**given: Any) -> int | Report:  # noqa: ANN401 (of click)
            return function(VerbCall(*[given.pop(name, None) for name in _SHARED]), **given)

        formats = _format_options if (path if reads is None else reads) else ()
        chosen = [_index_option] if index else []
        for option in (json_option, storage_option, *formats, *chosen):
            called = option(called)
        params = [*reversed([*vars(called).pop("__click_params__"), *own])]
        params = [click.Argument(["path"])] * path + params
        return click.command(cls=cls, params=params, epilog=examples(*lines))(called)

    return decorate


def examples(*lines: str) -> str:
    """Return the end of a verb's help: command lines to copy."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def option(
    name: str,
    text: str,
    dest: str | None = None,
    **settings: Any,  # noqa: ANN401 (of click.option)
) -> Callable[[F], F]:
    """Add an option; `name` goes on with what its value is: `--batch-size B`, `--form a|b`."""
    names, _, value = name.partition(" ")
    given = [*names.split("/"), *([dest] if dest else [])]
    if "|" in value and " " not in value:
        settings["type"], value = click.Choice(value.split("|")), ""
    return click.option(*given, metavar=value or None, help=text, show_default=True, **settings)


def flag(name: str, text: str, dest: str | None = None) -> Callable[[F], F]:
    """Add an option without a value."""
    return option(name, text, dest, is_flag=True)


def workers_option(verb: str) -> Callable[[F], F]:
    """Add `--workers N`; `verb` is the work of these processes."""
    text = f"Processes that {verb}; by default one per processor, 0 for none beside this one."
    return option("--workers N", text, type=FROM_0)


def _parse_options(
    ctx: click.Context, param: click.Parameter, given: Sequence[str]
) -> StorageOptions:
    pairs = [text.partition("=") for text in given]
    if not all(key and separator for key, separator, _ in pairs):
        # The text is not repeated: it may be a secret without its key.
        message = "expected KEY=VALUE, such as endpoint=http://localhost:9000"
        raise click.BadParameter(message, ctx, param)
    options = StorageOptions({key: value for key, _, value in pairs})
    try:
        options.check()
    except OptionError as failure:
        raise click.BadParameter(options.redact(str(failure)), ctx, param) from None
    return options


json_option = flag("--json", "Print one JSON document, for programs.", "as_json")
storage_option = option(
    "-o/--option KEY=VALUE",
    "Storage option, as often as needed: endpoint, region, access_key_id …; keep secrets in the "
    "environment instead (AWS_SECRET_ACCESS_KEY …).",
    "storage_options",
    multiple=True,
    callback=_parse_options,
)
shuffle_option = option(
    f"--shuffle {'|'.join(SHUFFLES)}",
    "Order of records, as for DataLoader; true chooses full or block by how the data is read.",
    default="true",
)
_index_option = option(
    "--index FOLDER",
    "Folder of the index, if it is not in its usual place (beside the data, or in the cache "
    "directory).",
    "folder",
)


FORMAT, FORMAT_OPTIONS, SPLIT = "penstock.format", "penstock.format_options", "penstock.split"
"""Where the options of a format are kept in the context of a command."""
_SIGNS = {"tab": "\t", "\\t": "\t", "none": None}


def _keep_format_option(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep an option of a format for `look_at`, so that no verb has to hand it on."""
    if value in (None, ()):
        return
    if (key := {"format": FORMAT, "split": SPLIT}.get(str(param.name))) is not None:
        ctx.meta[key] = value
        return
    if isinstance(value, str):
        value = _SIGNS.get(value, value)
    elif isinstance(value, tuple):
        value = list(value)
    ctx.meta.setdefault(FORMAT_OPTIONS, {})[param.name] = value


def _format_option(name: str, text: str, dest: str, **settings: Any) -> Callable[[F], F]:  # noqa: ANN401 (of click.option)
    return option(name, text, dest, callback=_keep_format_option, expose_value=False, **settings)


_format_options = (
    _format_option(
        "--null TEXT",
        "CSV: a text that stands for null, such as NA; as often as needed.",
        "null_values",
        multiple=True,
    ),
    _format_option(
        "--header",
        "CSV: the first row has the names of columns.",
        "header",
        flag_value=True,
        default=None,
    ),
    _format_option(
        "--no-header",
        "CSV: the first row is a record, and columns are called f0, f1 …",
        "header",
        flag_value=False,
        default=None,
    ),
    _format_option(
        "--columns A,B",
        "CSV: names of the columns, in place of the header.",
        "column_names",
        type=lambda text: (*text.split(","),),
    ),
    _format_option("--quote SIGN", "CSV: sign around fields, or none; found by default.", "quote"),
    _format_option(
        "--delimiter SIGN", "CSV: sign between fields (';', tab); found by default.", "delimiter"
    ),
    _format_option(
        "--token-dtype TYPE",
        "Tokens of data-forager: uint16 or uint32, where the folder does not settle it.",
        "token_dtype",
    ),
    _format_option(
        "--no-page-checksums",
        "Parquet: do not compare the checksums of pages, for files whose writer made wrong ones.",
        "page_checksums",
        flag_value=False,
        default=None,
    ),
    _format_option(
        "--format NAME",
        "Format of all files (jsonl, csv, parquet …), where their names do not say it.",
        "format",
    ),
    _format_option(
        "--split NAME",
        "Only the files of one split, by their names (train, validation …).",
        "split",
    ),
)
