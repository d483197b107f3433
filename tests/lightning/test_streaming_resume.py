"""A run over files goes on from any checkpoint with the very next batch."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import ChangedSourceError
from tests.lightning.streaming_files import records, write
from tests.lightning.streaming_runs import fit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    # Lightning 2.6 uses a class that torch has marked as old.
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used"),
]

RECORDS = 47


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 3, 14, 5, 8 and 17 records."""
    folder, start = tmp_path_factory.mktemp("files"), 0
    for at, count in enumerate((3, 14, 5, 8, 17)):
        write(folder / f"{at}.jsonl", records(start, count))
        start += count
    write(folder / "packed.jsonl.gz", records(0, RECORDS))
    return folder


def some(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Drop every fourth record and double every third."""
    if record["n"] % 4:
        yield record
    if record["n"] % 3 == 0:
        yield {**record, "n": record["n"] + 1000}


CHUNKS: dict[str, Any] = {"sharding": "chunk", "chunk_batch_size": 3, "replacement": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "as by default": {},
    "in order": {"replacement": False},
    "drawn and shuffled": {"observation_buffer_size": 9, "chunk_batch_size": 3, "sample_rate": 0.7},
    "all shuffled": {**CHUNKS, "observation_buffer_size": 9, "file_buffer_size": 3},
    "by two workers": {**CHUNKS, "sharding": "record", "num_workers": 2},
    "by a generator": {**CHUNKS, "preprocessor": some, "observation_buffer_size": 9},
    "of gzip": {"train": "gz$", "observation_buffer_size": 9, "chunk_batch_size": 3},
    "without end": {
        "engine": {"epoch": "infinite"},
        "trainer": {"max_epochs": -1, "max_steps": 20},
    },
    "by new loaders": {"sample_rate": 0.8, "trainer": {"reload_dataloaders_every_n_epochs": 1}},
    "validated": {
        "validate": r"/\d\.jsonl$",
        "sample_rate": {"validate": 0.5},
        "observation_buffer_size": {"validate": 9},
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(
    name: str, root: Path, tmp_path: Path
) -> None:
    variant = VARIANTS[name]
    whole = fit(root, tmp_path, **variant)
    epochs = [[one for one in whole.trained if one[0] == epoch] for epoch in (0, 1)]
    assert name == "without end" or all(epochs)
    if variant.get("replacement") is False and "preprocessor" not in variant:
        for epoch in epochs:
            assert sorted(chain(*(ids for _, ids, _ in epoch))) == list(range(RECORDS))
    first = len(epochs[0]) if epochs[1] else 7
    for step in (2, first, first + 3):
        again = fit(root, checkpoint=tmp_path / f"step={step}.ckpt", **variant)
        assert again.trained == whole.trained[step:], step
        last = [one for one in whole.validated if one[0] == 1]
        assert again.validated[-len(last) :] == last
    if name == "validated":
        samples = [[ids for epoch, ids in whole.validated if epoch == at] for at in (0, 1)]
        assert samples[0] != samples[1]


@pytest.mark.parametrize("sharding", ["file", "chunk", "record"])
@pytest.mark.parametrize(("before", "now"), [(2, 0), (0, 3)])
def test_other_workers_go_on_and_lose_no_record_and_repeat_none(
    sharding: str, before: int, now: int, root: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {**CHUNKS, "sharding": sharding, "file_buffer_size": 2}
    whole = fit(root, tmp_path, num_workers=before, **options)
    again = fit(root, checkpoint=tmp_path / "step=4.ckpt", num_workers=now, **options)
    for epoch in (0, 1):
        seen = [ids for at, ids, _ in whole.trained[:4] + again.trained if at == epoch]
        assert sorted(chain(*seen)) == list(range(RECORDS))


def test_a_run_goes_on_over_the_files_that_it_began_with(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    for path in root.glob("?.jsonl"):
        write(folder / path.name, []).write_bytes(path.read_bytes())
    whole = fit(folder, tmp_path / "saved")
    checkpoint = tmp_path / "saved" / "step=5.ckpt"
    write(folder / "0.5.jsonl", records(500))
    with pytest.warns(UserWarning, match=r"1 file was added since the run began; .* over the 5 "):
        again = fit(folder, checkpoint=checkpoint, train=r"/[\d.]+jsonl$")
    assert again.trained == whole.trained[5:]
    (folder / "1.jsonl").rename(folder / "gone")
    with pytest.raises(ChangedSourceError, match=r"1 file of 5 .* first is .*/1\.jsonl"):
        fit(folder, checkpoint=checkpoint)
    write(folder / "1.jsonl", records(3, 13))
    with pytest.raises(ChangedSourceError, match=r"units of the stream changed.*/1\.jsonl shrank"):
        fit(folder, checkpoint=checkpoint)
