"""The peer Hugging Face datasets, run by the Python of an environment of its own."""

from __future__ import annotations

from pathlib import Path

import datasets
from _access import Access

datasets.disable_progress_bars()


def convert(source: str, target: str) -> None:
    datasets.Dataset.from_json(source, cache_dir=target)


def opened(path: str) -> tuple:
    files = sorted(Path(path).rglob("*.arrow"))
    whole = datasets.concatenate_datasets([datasets.Dataset.from_file(str(f)) for f in files])
    return whole.__getitem__, whole.__getitems__


if __name__ == "__main__":
    Access(opened, convert).serve()
