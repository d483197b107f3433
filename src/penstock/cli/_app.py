"""The group of all verbs; each is loaded when it is asked for."""

from __future__ import annotations

import importlib

import click

from penstock import __version__

_VERBS = {
    "info": ("info._info", "Show files, records, bytes, index and columns of PATH."),
    "show": ("show._show", "Print records: the first, a range, or a sample."),
    "index": ("_index", "Find every record once, to fetch any by its number."),
    "check": ("check._check", "Find bad lines, damaged files and leftovers."),
    "profile": ("_profile", "Show what fields hold: types, nulls, ranges, drift."),
    "materialize": ("_materialize", "Decode fields once, so that batches are only gathered."),
    "tokenize": ("_tokenize", "Tokenise text into samples for language models."),
    "plan": ("plan._plan", "Show the steps, reads and records of a training run."),
    "bench": ("bench._bench", "Measure a loader: its rate, its stages, what helps."),
    "convert": ("_convert", "Write records as JSON Lines: other compressions, other shards."),
    "clean": ("_clean", "Remove what killed writers and builders left behind."),
    "demo": ("demo._demo", "See it work in a few seconds."),
}
"""Each verb: its module, which has a command of the same name, and its line in the help."""


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(f"penstock.cli.{_VERBS[cmd_name][0]}")
        verb = getattr(module, cmd_name)
        return verb if isinstance(verb, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in _VERBS.items()])


@click.group(
    cls=_Verbs,
    subcommand_metavar="VERB [PATH] [OPTIONS] …",
    options_metavar="",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 findings, 2 usage, 3 input or output. "
    "Every verb explains itself: penstock VERB --help",
)
@click.version_option(__version__, prog_name="penstock")
def app() -> None:
    """Look at, index, check and convert the records that you have.

    PATH is a file of records (.jsonl, .csv, .parquet, .arrow …), a directory of them, or a pattern
    in quotes ('logs/*.jsonl'); files and directories may lie in object storage (s3://, gs://,
    az://), on an HTTP server, or where fsspec reads (hf:// …). Verbs that look, plan or run also
    read tokens (a folder of penstock tokenize, Megatron-LM's .bin and .idx) and MDS folders.
    """
