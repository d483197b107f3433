"""The group of all verbs; each is loaded when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from penstock import __version__

_VERBS = {
    "info": "What PATH holds: files, records, bytes, index, columns.",
    "show": "Records to look at: the first, some, or a sample.",
    "index": "Find every record once, to fetch any by its number.",
    "check": "What is wrong: bad lines, damaged files, leftovers.",
    "profile": "What the fields hold: types, nulls, ranges, and what drifts.",
    "materialize": "Decode fields once, so that batches are only gathered.",
    "tokenize": "Text into samples of tokens, for language models.",
    "plan": "What a run will do: steps, reads, which records come when.",
    "bench": "How fast a loader is here, where its time goes, what helps.",
    "convert": "The same lines compressed or sharded in another way.",
    "clean": "Remove what killed writers and builders left behind.",
    "demo": "See it work in a few seconds.",
}
"""Each verb and its line in the help, which loads none of them."""

_HERE = Path(__file__).parent


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        folder = f"{cmd_name}." if (_HERE / cmd_name).is_dir() else ""
        module = importlib.import_module(f"penstock.cli.{folder}_{cmd_name}")
        verb = getattr(module, cmd_name)
        return verb if isinstance(verb, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(_VERBS.items()))


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

    PATH is a JSON Lines file (.jsonl, .jsonl.zst, .jsonl.gz), a directory of them, or a pattern
    in quotes ('logs/*.jsonl'); files and directories may lie in object storage (s3://, gs://,
    az://). All verbs but convert and tokenize read CSV and Parquet, too; those that look, plan or
    run also tokens (a folder of penstock tokenize, Megatron-LM's .bin and .idx) and MDS folders.
    """
