"""Labels of instruction data: only the answers have one, in every packing, window and process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.errors import CorruptIndexError, OptionError
from tests.index.tokenize_samples import EOS, indexer
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import TokenSource
    from tests.servers.s3_server import S3Server

TEMPLATE = "Q: {q}\nA: {a}"
ROWS = [{"q": "why " * (n % 5), "a": chr(97 + n % 26) * (n % 7)} for n in range(90)]
SIZE = 24


def made(folder: Path, rows: list[dict[str, str]] = ROWS, **options: Any) -> TokenSource:
    """Return the tokens of rows; a token is a byte, and those of answers alone are trained."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"template": TEMPLATE, "sample_size": SIZE, **options}
    indexer(input_base_path=folder, **options)()
    return penstock.open(folder)  # type: ignore[return-value]


def by_hand(rows: list[dict[str, str]], *, eos: bool = True) -> list[tuple[int, bool]]:
    """Return the stream of tokens, and which of them are trained."""
    stream = []
    for row in rows:
        stream += [(token, False) for token in f"Q: {row['q']}\nA: ".encode()]
        stream += [(token, True) for token in [*row["a"].encode(), *([EOS] if eos else [])]]
    return stream


def labels_of(stream: list[tuple[int, bool]], *, shift: bool) -> list[int]:
    labels = [token if flag else -100 for token, flag in stream]
    return [*labels[1:], -100] if shift else labels


def rows_in(source: object, tokens: penstock.Tokens, **options: Any) -> list[dict[str, Any]]:
    """Return ids, inputs and labels of every row, by record."""
    loader = penstock.DataLoader(source, tokens, **{"batch_size": 5, **options})
    return [
        {"id": number, "inputs": inputs.tolist(), "labels": labels.tolist()}
        for batch in loader
        for number, inputs, labels in zip(
            batch.ids.tolist(), batch["input_ids"], batch["labels"], strict=True
        )
    ]


@settings(max_examples=rounds(10, 300), deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries({"q": st.text("xy", max_size=9), "a": st.text("ab", max_size=9)}),
        min_size=1,
        max_size=9,
    ),
    size=st.none() | st.integers(1, 20),
    windows=st.tuples(st.integers(1, 20), st.integers(1, 20), st.booleans()),
)
def test_every_window_has_the_labels_of_the_stream(
    rows: list[dict[str, str]],
    size: int | None,
    windows: tuple[int, int, bool],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    length, stride, shift = windows
    folder = tmp_path_factory.mktemp("made")
    options = {} if size is None else {"keep_remainder": "pad"}
    source = made(folder, rows, sample_size=size, unit_bytes=40, **options)
    stream = by_hand(rows, eos=size is not None)
    if len(stream) < length:
        return
    tokens = penstock.Tokens(length, stride, shift=shift, boundaries=False)
    expected = labels_of(stream, shift=shift)
    for row in rows_in(source, tokens):
        begin = row["id"] * stride
        labels = expected[begin : begin + length]
        assert row["labels"] == labels + [-100] * (length - len(labels))
        inputs = [token for token, _ in stream[begin : begin + length]]
        assert row["inputs"] == inputs + [0] * (length - len(inputs))


def test_documents_packed_by_best_fit_keep_their_labels(tmp_path: Path) -> None:
    source = made(tmp_path, packing="best_fit", pad_idx=0, sample_size=40, unit_bytes=300)
    rows = rows_in(source, penstock.Tokens(40))
    found = []
    for row in rows:
        flags = source.trained([row["id"]])
        assert flags is not None
        labels = [-100, *row["labels"][:-1]]  # Beside the tokens that they are.
        documents, offsets = source.document_ends([row["id"]])  # type: ignore[misc]
        assert len(offsets) == 2
        for begin, end in zip([0, *documents.tolist()], documents.tolist(), strict=False):
            found.append(tuple(zip(row["inputs"][begin:end], labels[begin:end], strict=True)))
        assert not flags[0, documents[-1] :].any()
    expected = []
    for row in ROWS:
        stream = by_hand([row])
        expected.append(tuple((token, token if flag else -100) for token, flag in stream))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_has_the_same_labels(packing: str, workers: int, tmp_path: Path) -> None:
    source = made(tmp_path, packing=packing, sample_size=40)
    tokens = penstock.Tokens(40)
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "batch_size": 4}

    def shown(batch: Any) -> tuple[Any, ...]:
        return batch.ids.tolist(), batch["input_ids"].tolist(), batch["labels"].tolist()

    whole = [*map(shown, penstock.DataLoader(source, tokens, **options))]
    assert any(label != -100 for _, _, labels in whole for row in labels for label in row)
    stopped = penstock.DataLoader(source, tokens, num_workers=workers, **options)
    running = iter(stopped)
    seen = [shown(next(running)) for _ in range(4)]
    state = json.loads(json.dumps(stopped.state_dict()))
    del running
    again = penstock.DataLoader(source, tokens, num_workers=2 - workers, **options)
    again.load_state_dict(state)
    assert [*seen, *map(shown, again)] == whole


def test_views_choose_rows_with_their_labels(tmp_path: Path) -> None:
    source = made(tmp_path / "masked")
    other = made(tmp_path / "plain", template=None, text_key="q")
    tokens = penstock.Tokens(SIZE, shift=False)
    rows = {row["id"]: row for row in rows_in(source, tokens)}
    plain = {row["id"]: row for row in rows_in(other, tokens)}
    assert plain[0]["labels"] == plain[0]["inputs"]
    for view, choose in (
        (source.take([7, 2, 2]), [rows[7], rows[2], rows[2]]),
        (other.take([1]) + source.take([5]) + other.take([3]), [plain[1], rows[5], plain[3]]),
        (source.windows(SIZE).take([4]), [rows[4]]),
    ):
        labels = [row["labels"] for row in rows_in(view, tokens)]
        assert labels == [row["labels"] for row in choose]
    windows = source.windows(SIZE, ahead=1)
    shifted = penstock.Tokens(SIZE)
    found = [
        row["labels"] for part in windows.split(a=0.5, b=0.5) for row in rows_in(part, shifted)
    ]
    assert sorted(found) == sorted(row["labels"] for row in rows_in(source, shifted))
    assert (other.take([1]) + other).trained([0]) is None


def test_samples_of_other_widths_are_still_refused(tmp_path: Path) -> None:
    source = made(tmp_path, packing="best_fit", sample_size=40)
    with pytest.raises(OptionError, match="packed by best"):
        penstock.DataLoader(source, penstock.Tokens(16), batch_size=2)


def test_documents_of_any_length_have_flags_only_in_windows(tmp_path: Path) -> None:
    source = made(tmp_path, sample_size=None)
    with pytest.raises(OptionError, match="lengths of their own"):
        source.trained([0])
    flags = source.windows(7).trained([1])
    assert flags is not None
    assert flags[0].tolist() == [flag for _, flag in by_hand(ROWS, eos=False)[7:14]]


def test_rows_that_are_not_valid_have_no_labels(tmp_path: Path) -> None:
    source = made(tmp_path)
    for rank in range(3):
        options: dict[str, Any] = {"rank": rank, "world_size": 3, "batch_size": 4}
        for batch in penstock.DataLoader(source, penstock.Tokens(SIZE), **options):
            if batch.valid is not None:
                assert bool((batch["labels"][~batch.valid] == -100).all())


def test_the_mask_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    rows = [{"q": "aa", "a": "bb"}] * 9
    prints = {
        made(tmp_path / str(number), rows, template="{q}{a}", **options).fingerprint
        for number, options in enumerate([{}, {"answers": ["q"]}])
    }
    assert len(prints) == 2


def test_an_older_release_does_not_train_on_everything(tmp_path: Path) -> None:
    made(tmp_path / "plain", template=None, text_key="q")
    made(tmp_path / "masked")
    versions = [
        json.loads((tmp_path / name / "index" / "meta.json").read_text())["version"]
        for name in ("plain", "masked")
    ]
    assert versions == [1, 2]
    path = tmp_path / "masked" / "index" / "meta.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(CorruptIndexError, match="newer Penstock"):
        penstock.open(tmp_path / "masked")


@pytest.mark.s3
def test_remote_tokens_have_their_labels(
    tmp_path: Path, s3_server: S3Server, bucket: str, own_cache: Path
) -> None:
    del own_cache
    local = made(tmp_path)
    url, storage = f"s3://{bucket}/masked", s3_server.storage_options
    given: dict[str, Any] = {"template": TEMPLATE, "sample_size": SIZE, "storage_options": storage}
    indexer(input_file_paths=[tmp_path / "a.jsonl"], output_base_path=url, **given)()
    remote = penstock.open(url, storage_options=storage)
    tokens = penstock.Tokens(16, stride=9)
    assert rows_in(remote, tokens) == rows_in(local, tokens)
    assert np.array_equal(remote.trained([3, 1]), local.trained([3, 1]))  # type: ignore[attr-defined]
