"""A mixture in place of a source: its order, its shares, its resumes, whatever it is read from."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import DataLoader, Mixture
from penstock.batch import Tokens
from penstock.errors import ChangedSourceError, OptionError, SchemaMismatchError
from penstock.index import (
    create_default_jsonl_indexer,
    create_tokenize_and_index_jsonl_text_func,
)
from penstock.jsonl import JsonlDir
from penstock.order import Cursor
from tests.loading import gloo_programs
from tests.loading.processes import still_there
from tests.loading.ranks import global_batch
from tests.loading.test_killed_runs import _kill
from tests.loading.token_samples import matrix, open_tokens
from tests.loading.toy_encoders import HashedMask
from tests.loading.toy_plan import ThreeFive
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source
    from tests.loading.ranks import Nursery
    from tests.servers.s3_server import S3Server

LENGTHS = {"web": 120, "code": 45, "tiny": 6}
TOTAL = sum(LENGTHS.values())
WEIGHTS = {"web": 6, "code": 3, "tiny": 1}
PHASES = [(0, {"web": 3, "code": 1}), (40, WEIGHTS)]


def records(name: str) -> list[dict[str, Any]]:
    """Return records of a source whose `n` are their numbers in the mixture."""
    start = sum(list(LENGTHS.values())[: list(LENGTHS).index(name)])
    return [{"n": start + number, "of": name} for number in range(LENGTHS[name])]


def sources() -> dict[str, Any]:
    return {name: penstock.open(records(name)) for name in LENGTHS}


def mixture(weights: Any = WEIGHTS, stop: Any = "first_exhausted", **more: Any) -> Mixture:
    return Mixture(sources(), weights, stop=stop, **more)


def loader(mix: Mixture, **options: Any) -> DataLoader:
    usual: dict[str, Any] = {"batch_size": 8, "num_workers": 0, "seed": 3, "output": None}
    return DataLoader(mix, {"n": "int64"}, **{**usual, **options})


def test_a_loader_of_a_mixture_can_be_pickled_before_and_in_a_pass() -> None:
    begun = loader(mixture())
    whole = [rows(batch) for batch in pickle.loads(pickle.dumps(begun))]
    next(iter(begun))
    twin = pickle.loads(pickle.dumps(begun))
    twin.load_state_dict(begun.state_dict())
    assert [rows(batch) for batch in twin] == whole[1:]


def rows(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    ids = batch.ids.tolist()
    assert batch["n"].tolist() == ids
    flags = [True] * len(ids) if batch.valid is None else batch.valid.tolist()
    return [number for number, counts in zip(ids, flags, strict=True) if counts]


def order_of(mix: Mixture, epoch: int = 0, seed: int = 3) -> Any:
    return Mixture(mix.lengths, _phases(mix), mix.stop, seed).order(epoch)


def _phases(mix: Mixture) -> Any:
    return [
        (start, {name: one for name, one in zip(mix.names, own, strict=True) if one})
        for start, own in mix.phases
    ]


@pytest.mark.parametrize("workers", [0, "auto", 2])
@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted"])
def test_batches_are_those_of_the_order(stop: str, workers: Any) -> None:
    mix = mixture(PHASES, stop)
    run = loader(mix, num_workers=workers, epochs=2)
    steps, found = len(run), []
    for batch in run:
        found += rows(batch)
        names = run.source_of(batch.ids)
        assert all(
            records(str(name))[0]["n"] <= n for name, n in zip(names, rows(batch), strict=True)
        )
    orders = [order_of(mix, epoch) for epoch in range(2)]
    expected = [order.positions(0, len(order)).tolist() for order in orders]
    assert found == expected[0] + expected[1]
    assert steps == sum(-(-len(order) // 8) for order in orders)


def test_a_mixture_that_repeats_never_ends() -> None:
    mix = mixture(stop="repeat")
    run = loader(mix)
    found = [number for _, batch in zip(range(80), run, strict=False) for number in rows(batch)]
    assert found == order_of(mix).positions(0, 640).tolist()
    with pytest.raises(TypeError, match="stop='repeat' has no length"):
        len(run)
    seen = mix.report(run)
    assert sum(one.records for one in seen.values()) == 640
    assert seen["tiny"].epochs > 10
    assert seen == mix.report(json.loads(json.dumps(run.state_dict())))


@settings(max_examples=rounds(10, 200))
@given(
    stop=st.sampled_from(["first_exhausted", "all_exhausted", "repeat"]),
    phases=st.booleans(),
    before=st.sampled_from([1, 2, 3, 4]),
    after=st.sampled_from([1, 2, 3, 6]),
    cut=st.integers(0, 25),
    epoch=st.integers(0, 3),
    skip=st.sets(st.integers(0, 170), max_size=5),
)
def test_other_ranks_go_on_with_the_very_next_record(  # noqa: PLR0913, PLR0917
    stop: str,
    phases: bool,  # noqa: FBT001
    before: int,
    after: int,
    cut: int,
    epoch: int,
    skip: set[int],
) -> None:
    mix = mixture(PHASES if phases else WEIGHTS, stop)
    options: dict[str, Any] = {"batch_size": None, "global_batch_size": 12, "skip": sorted(skip)}

    def ranks(world_size: int, limit: int, state: Any) -> tuple[list[int], list[Any]]:
        parts, states = [], []
        for rank in range(world_size):
            run = loader(mix, rank=rank, world_size=world_size, **options)
            run.set_epoch(epoch) if state is None else run.load_state_dict(state)
            parts.append([rows(b) for _, b in zip(range(limit), run, strict=False)])
            states.append(json.loads(json.dumps(run.state_dict())))
        assert all(one == states[0] for one in states)
        return [n for step in zip(*parts, strict=True) for own in step for n in own], states

    whole, _ = ranks(1, 40, None)
    first, states = ranks(before, cut, None)
    if states[0]["epoch"] != epoch:  # The pass was over, and the run stands in the next epoch.
        assert first == whole
        return
    rest, _ = ranks(after, 40 - cut, states[0])
    assert first + rest == whole[: len(first) + len(rest)]
    assert len(first) + len(rest) == len(whole)


@pytest.mark.parametrize("stop", ["first_exhausted", "all_exhausted", "repeat"])
def test_weights_change_at_a_checkpoint_and_each_source_goes_on(stop: str) -> None:
    first = loader(mixture({"web": 8, "code": 1, "tiny": 1}, stop), batch_size=5)
    run = iter(first)
    before = [n for _ in range(7) for n in rows(next(run))]
    state = json.loads(json.dumps(first.state_dict()))
    changed = mixture({"web": 1, "code": 8, "tiny": 1}, stop)
    second = loader(changed, batch_size=5)
    second.load_state_dict(state)
    after = [n for _, batch in zip(range(8), second, strict=False) for n in rows(batch)]
    code = set(range(120, 165))
    assert len(code.intersection(after)) > 3 * len(code.intersection(before))
    if stop == "first_exhausted":
        assert not set(before) & set(after)
    # What was seen is what was handed out, under both weights.
    seen = changed.report(second)
    assert [one.records for one in seen.values()] == [
        sum(low <= n < high for n in before + after)
        for low, high in ((0, 120), (120, 165), (165, 171))
    ]
    # The same weights again go on as they were: a change is a change only once.
    third = loader(mixture({"web": 1, "code": 8, "tiny": 1}, stop), batch_size=5)
    third.load_state_dict(json.loads(json.dumps(second.state_dict())))
    assert third.state_dict() == second.state_dict()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    """The same records as lines, as Parquet, and as a view of lines with others between them."""
    folder = tmp_path_factory.mktemp("mixture")
    with penstock.writer(folder / "web.jsonl") as sink:
        sink.write(records("web"))
    pq.write_table(pa.Table.from_pylist(records("code")), folder / "code.parquet")
    between = [{"n": -1, "of": "?"}]
    tiny = [one for record in records("tiny") for one in (record, *between)]
    with penstock.writer(folder / "tiny.jsonl.zst") as sink:
        sink.write(tiny)
    return {
        "web": penstock.open(folder / "web.jsonl"),
        "code": penstock.open(folder / "code.parquet"),
        "tiny": penstock.open(folder / "tiny.jsonl.zst").where("n >= 0"),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"materialize": False},
        {"materialize": True},
        {"num_workers": 2, "multiprocessing_context": "spawn", "materialize": False},
        {"shuffle": "full", "num_workers": "auto"},
    ],
)
def test_lines_parquet_and_views_are_mixed(
    files: dict[str, Source], options: dict[str, Any]
) -> None:
    mix = Mixture(files, WEIGHTS, stop="all_exhausted")
    run = DataLoader(
        mix, {"n": "int64", "of": "string"}, batch_size=10, **{"num_workers": 0, **options}
    )
    expected = order_of(mix, seed=0)
    if options.get("shuffle") == "full":
        assert (run.state_dict()["order"]["orders"]) == ["full"] * 3  # type: ignore[index]
    found = []
    for batch in run:
        assert batch["of"] == run.source_of(batch.ids).tolist()
        found += rows(batch)
    assert sorted(set(found)) == list(range(TOTAL))
    # Blocks of so few records are shuffled in full.
    assert found == expected.positions(0, len(expected)).tolist()


def test_without_an_encoder_a_batch_is_a_list_of_records(files: dict[str, Source]) -> None:
    run = DataLoader(Mixture(files, WEIGHTS), batch_size=20)
    for batch in run:
        assert [one["of"] for one in batch] == run.source_of(batch.ids).tolist()
    names = DataLoader(Mixture(files, WEIGHTS), ["n", "of"], batch_size=20)
    assert next(iter(names))["n"].dtype.is_floating_point is False


@pytest.mark.s3
def test_remote_and_local_sources_are_mixed(
    s3_server: S3Server, bucket: str, files: dict[str, Source]
) -> None:
    url = f"s3://{bucket}/web"
    with JsonlDir(url, s3_server.storage_options).writer_sync(".jsonl.zst") as writer:
        writer.write_many(records("web"))
    remote = penstock.open(url, storage_options=s3_server.storage_options)
    mix = Mixture({**files, "web": remote}, WEIGHTS)
    run = DataLoader(mix, {"n": "int64"}, batch_size=10, num_workers=2)
    order = order_of(mix, seed=0)
    assert [n for batch in run for n in rows(batch)] == order.positions(0, len(order)).tolist()
    assert "web" in run.explain()["order"].split("each source")[1]  # type: ignore[index]
    assert "kept on this host's disk" in run.explain()["blocks"]  # type: ignore[index]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("corpora")
    return {
        "web": open_tokens(folder / "web", matrix(50, 64)),
        "code": open_tokens(folder / "code", matrix(21, 32, np.uint32) + 100_000),
    }


class TestTokens:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_windows_of_several_corpora_are_mixed(
        self, corpora: dict[str, Source], workers: int
    ) -> None:
        mix = Mixture(corpora, {"web": 2, "code": 1})
        run = DataLoader(mix, Tokens(16, stride=12), batch_size=4, num_workers=workers)
        windows = [one.windows(16, 12, ahead=1) for one in corpora.values()]  # type: ignore[attr-defined]
        flat = np.concatenate([np.asarray(one[:], np.int64) for one in windows])
        assert len(run.source) == len(flat)
        mixed = Mixture(dict(zip(corpora, map(len, windows), strict=True)), {"web": 2, "code": 1})
        seen: list[int] = []
        for batch in run:
            ids = batch.ids.tolist()
            assert (batch["input_ids"].numpy() == flat[ids, :16]).all()
            labels = batch["labels"].numpy()
            assert ((labels == flat[ids, 1:]) | (labels == -100)).all()
            is_code = run.source_of(ids) == "code"
            assert (is_code == (flat[ids, 0] >= 100_000)).all()
            seen += ids
        assert seen == mixed.positions(0, len(mixed)).tolist()
        assert mix.report(run)["code"].records == sum(number >= len(windows[0]) for number in seen)

    def test_a_run_over_windows_goes_on(self, corpora: dict[str, Source]) -> None:
        def one() -> DataLoader:
            mix = Mixture(corpora, {"web": 2, "code": 1}, stop="repeat")
            return DataLoader(mix, Tokens(16), batch_size=4)

        first = one()
        run = iter(first)
        for _ in range(90):
            next(run)
        second = one()
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        for _, (expected, found) in zip(range(30), zip(run, second, strict=False), strict=False):
            assert expected.ids.tolist() == found.ids.tolist()
            assert expected["labels"].tolist() == found["labels"].tolist()

    def test_packed_samples_are_mixed_with_windows(
        self, corpora: dict[str, Source], tmp_path: Path
    ) -> None:
        (tmp_path / "packed").mkdir()
        texts = (json.dumps({"text": "x" * (n % 15 + 1)}) + "\n" for n in range(80))
        (tmp_path / "packed" / "a.jsonl").write_text("".join(texts))
        create_tokenize_and_index_jsonl_text_func(
            lambda text: [7] * len(text),
            0,
            tmp_path / "packed",
            sample_size=16,
            packing="best_fit",
        )()
        packed = penstock.open(tmp_path / "packed")
        mix = Mixture({"web": corpora["web"], "packed": packed}, {"web": 1, "packed": 1})
        with pytest.raises(OptionError, match="the ends of documents are not known"):
            DataLoader(mix, Tokens(16), batch_size=8)
        run = DataLoader(mix, Tokens(16, boundaries=False), batch_size=8)
        batch = next(iter(run))
        assert batch["input_ids"].shape == (8, 16)
        is_packed = run.source_of(batch.ids) == "packed"
        assert 0 < is_packed.sum() < 8
        assert ((batch["input_ids"] == 7).any(dim=1).numpy() == is_packed).all()

    def test_samples_as_they_are_stored(self, corpora: dict[str, Source]) -> None:
        batch = next(iter(DataLoader(Mixture(corpora, {"web": 1, "code": 1}), batch_size=6)))
        assert sorted({len(row) for row in batch}) == [32, 64]

    def test_a_corpus_without_such_windows_is_named(self, corpora: dict[str, Source]) -> None:
        mix = Mixture(corpora, {"web": 1, "code": 1})
        with pytest.raises(OptionError, match="source 'code': there is no window of 700 tokens"):
            DataLoader(mix, Tokens(700), batch_size=4)
        taken = Mixture({**corpora, "code": corpora["code"].take(range(9))}, {"web": 1, "code": 1})
        with pytest.raises(OptionError, match=r"source 'code': .* have 32 tokens each"):
            DataLoader(taken, Tokens(64, shift=False), batch_size=4)


class TestFields:
    def two(self, one: Any, other: Any) -> Mixture:
        of = {"web": penstock.open([one] * 5), "code": penstock.open([other] * 5)}
        return Mixture(of, {"web": 1, "code": 1}, stop="all_exhausted")

    def test_a_field_of_another_type_in_one_source_is_named(self) -> None:
        mix = self.two({"id": 1, "meta": "x"}, {"id": "a", "meta": 2.5})
        for encode in ({"id": "int64"}, ["id"]):
            with pytest.raises(
                SchemaMismatchError,
                match="field 'id' is int64 in source 'web' and string in source 'code'",
            ):
                DataLoader(mix, encode, batch_size=2)
        texts = DataLoader(mix, {"id": "text", "meta": "json"}, batch_size=10)
        assert set(next(iter(texts))["id"]) == {"1", "a"}

    def test_fields_that_are_not_asked_for_may_differ(self) -> None:
        mix = self.two({"id": 1, "meta": "x", "y": 1}, {"id": 2, "meta": 2.5, "z": [1]})
        for encode in ({"id": "int64"}, ["id"]):
            (batch,) = DataLoader(mix, encode, batch_size=20)
            assert set(batch["id"].tolist()) == {1, 2}
        with pytest.raises(OptionError, match="did you mean 'id'"):
            DataLoader(mix, {"ide": "int64"}, batch_size=2)

    def test_a_field_that_one_source_lacks_is_null_there(self) -> None:
        mix = self.two({"id": 1, "y": 5}, {"id": 2})
        (batch,) = DataLoader(mix, {"id": "int64", "y": "int64 = -1"}, batch_size=20)
        assert set(zip(batch["id"].tolist(), batch["y"].tolist(), strict=True)) == {(1, 5), (2, -1)}


class TestAppended:
    def write(self, folder: Path, name: str, start: int, stop: int, part: int = 0) -> None:
        (folder / name).mkdir(exist_ok=True)
        lines = (json.dumps({"n": n, "of": name}) + "\n" for n in range(start, stop))
        (folder / name / f"{part}.jsonl").write_text("".join(lines))
        create_default_jsonl_indexer(folder / name, update=part > 0)()

    def open(self, folder: Path) -> Mixture:
        of = {name: penstock.open(folder / name) for name in ("web", "code")}
        return Mixture(of, {"web": 2, "code": 1}, stop="all_exhausted")

    @pytest.mark.parametrize("grown", [["code"], ["web"], ["web", "code"]])
    def test_a_run_goes_on_over_the_records_it_began_with(
        self, tmp_path: Path, grown: list[str]
    ) -> None:
        self.write(tmp_path, "web", 0, 50)
        self.write(tmp_path, "code", 50, 80)
        first = DataLoader(self.open(tmp_path), {"n": "int64"}, batch_size=5)
        run = iter(first)
        for _ in range(4):
            next(run)
        state = json.loads(json.dumps(first.state_dict()))
        rest = [batch["n"].tolist() for batch in run]
        for name in grown:
            self.write(tmp_path, name, 900, 910, part=1)
        second = DataLoader(self.open(tmp_path), {"n": "int64"}, batch_size=5)
        with pytest.warns(UserWarning, match=f"{10 * len(grown)} records were appended"):
            second.load_state_dict(state)
        found = list(second)
        assert [batch["n"].tolist() for batch in found] == rest
        assert [batch.ids.tolist() for batch in found] == rest
        assert all((second.source_of(b.ids) == "code").sum() == (b.ids >= 50).sum() for b in found)
        skipping = DataLoader(self.open(tmp_path), {"n": "int64"}, batch_size=5, skip=[3])
        with pytest.raises(OptionError, match="leave skip out"):
            skipping.load_state_dict(state)
        # A new run has all of them.
        new = DataLoader(self.open(tmp_path), {"n": "int64"}, batch_size=200)
        assert len({n for batch in new for n in batch["n"].tolist()}) == 80 + 10

    def test_another_source_is_refused_unless_the_run_may_go_on(self, tmp_path: Path) -> None:
        first = loader(mixture())
        next(iter(first))
        state = first.state_dict()
        other = {**sources(), "code": penstock.open([{"n": 7, "of": "new"}] * 30)}
        mix = Mixture(other, WEIGHTS)
        with pytest.raises(ChangedSourceError, match="the source changed"):
            DataLoader(mix, {"n": "int64"}, batch_size=8, num_workers=0).load_state_dict(state)
        second = DataLoader(mix, {"n": "int64"}, batch_size=8, on_changed="continue")
        second.load_state_dict(state)
        assert second.state_dict()["position"] == 8
        assert second.state_dict()["order"]["lengths"] == [120, 30, 6]  # type: ignore[index]
        steps = len(second)
        assert len(list(second)) == steps - 1


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"weights": [1.0] * TOTAL}, "a Mixture has weights of its own"),
            ({"balance": "of"}, "a Mixture has weights of its own"),
            ({"shuffle": "mixture"}, "shuffle='mixture'"),
        ],
    )
    def test_what_does_not_go_together(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            loader(mixture(), **options)

    def test_lengths_have_no_records(self) -> None:
        with pytest.raises(OptionError, match="source 'web' of the mixture is 7"):
            loader(Mixture({"web": 7}, {"web": 1}))

    def test_a_plan_of_a_mixture_without_an_end(self) -> None:
        with pytest.raises(OptionError, match="no plan can cut"):
            loader(mixture(stop="repeat"), batch_size=ThreeFive())
        found = loader(mixture(), batch_size=ThreeFive())
        order = order_of(mixture())
        assert [n for b in found for n in rows(b)] == order.positions(0, len(order)).tolist()

    def test_two_seeds(self) -> None:
        with pytest.raises(OptionError, match="seed=5, and the loader seed=3"):
            loader(mixture(seed=5))
        found = loader(mixture(seed=5), seed=0)
        assert found.state_dict()["seed"] == 5
        assert rows(next(iter(found))) == order_of(mixture(), seed=5).positions(0, 8).tolist()

    def test_names_of_sources_of_no_mixture(self) -> None:
        run = DataLoader([{"n": 1}], batch_size=1)
        with pytest.raises(OptionError, match="only the records of a Mixture"):
            run.source_of([0])

    def test_states_of_other_runs(self) -> None:
        mixed = loader(mixture())
        plain = DataLoader(sum(sources().values(), penstock.open([])), batch_size=8)
        for one, other in ((mixed, plain), (plain, mixed)):
            state = {**one.state_dict(), "fingerprint": other.state_dict()["fingerprint"]}
            with pytest.raises(OptionError, match="order, and this loader has"):
                other.load_state_dict({**state, "length": other.state_dict()["length"]})
        with pytest.raises(OptionError, match="stop 'first_exhausted'"):
            loader(mixture(stop="repeat")).load_state_dict(mixed.state_dict())

    def test_an_encoder_that_reads_another_source(self) -> None:
        class Other(HashedMask):
            def bind(self, source: Source) -> tuple[Source, Other]:
                return source.take([0, 1]), self

        with pytest.raises(OptionError, match="whose records it must keep apart"):
            DataLoader(mixture(), Other(), batch_size=2)


def test_what_was_decided_is_explained() -> None:
    run = loader(mixture(PHASES, "repeat"))
    order = run.explain()["order"]  # type: ignore[index]
    assert order.startswith("mixture, seed 3: web 75.0%, code 25.0%; from position 40 on web 60.0%")
    assert "stop='repeat'" in order
    assert "mixture order" in repr(run)
    assert (
        run.explain(step=5).ids.tolist()
        == order_of(mixture(PHASES, "repeat")).positions(40, 48).tolist()
    )  # type: ignore[union-attr]


@pytest.mark.parametrize("stop", ["first_exhausted", "repeat"])
def test_a_record_that_comes_again_is_drawn_for_again(stop: str) -> None:
    """Masks of records that repeat differ from time to time; else they are those of a record."""
    run = DataLoader(mixture(stop=stop), HashedMask(), batch_size=8, num_workers=0)
    masks: dict[int, set[bool]] = {}
    for _, batch in zip(range(100), run, strict=False):
        for number, is_masked in zip(batch.ids.tolist(), batch["is_masked"].tolist(), strict=True):
            masks.setdefault(number, set()).add(is_masked)
    both = [number for number, seen in masks.items() if len(seen) == 2]
    assert bool(both) == (stop == "repeat")


@settings(max_examples=rounds(3, 20))
@given(world=st.sampled_from([1, 2, 4]), batch_size=st.integers(1, 9))
def test_all_ranks_have_every_source(world: int, batch_size: int) -> None:
    """No rank sees one source only, whatever its slice of a step is."""
    mix = mixture({"web": 1, "code": 1, "tiny": 1}, "repeat")
    for rank in range(world):
        run = loader(mix, batch_size=batch_size, rank=rank, world_size=world)
        ids = [n for _, batch in zip(range(120), run, strict=False) for n in rows(batch)]
        counts = np.unique(run.source_of(ids), return_counts=True)[1]
        assert len(counts) == 3
        assert counts.min() > len(ids) / 6


@pytest.mark.parametrize("number", range(rounds(1, 6)))
def test_a_killed_job_goes_on_exactly_on_other_ranks(
    number: int, nursery: Nursery, files: dict[str, Source], tmp_path: Path
) -> None:
    """Three ranks are killed with -9; two go on with other weights, are killed, one ends."""
    paths = {name: files[name].files[0] for name in ("web", "code")}
    given = [{"web": 7, "code": 3}, {"web": 1, "code": 1}, {"web": 1, "code": 1}]
    checkpoint = tmp_path / "checkpoint"
    seen: list[int] = []
    worlds = [3, 2, 1]
    facts = Mixture({"web": 120, "code": 45}, given[0], "all_exhausted").facts()
    for job_number, world in enumerate(worlds):
        began = json.loads(checkpoint.read_text()) if checkpoint.exists() else None
        run = {
            "path": "",
            "mixture": {"sources": paths, "weights": given[job_number], "stop": "all_exhausted"},
            "loader": {"global_batch_size": 6, "seed": 11, "num_workers": (number + world) % 3},
            "checkpoint": str(checkpoint),
            "every": 3,
        }
        job = nursery.start(gloo_programs.train, tmp_path / f"job-{job_number}", world, run)
        if job_number < 2:
            assert still_there(_kill(job, 5 + number, workers=bool(number % 2))) == []
        else:
            job.wait()
        until = json.loads(checkpoint.read_text()) if job_number < 2 else None
        if began is not None:
            mix = Mixture({"web": 120, "code": 45}, given[job_number], "all_exhausted")
            facts = mix.continued(facts, began["epoch"], began["position"])
        ranks = job.rows()
        places = [r["at"] for r in ranks[0] if until is None or r["at"][1] <= until["position"]]
        for step in range(len(places)):
            seen += global_batch([one[step] for one in ranks], lanes=1)
    order = Cursor(fingerprint="", length=165, seed=11, kind="mixture", own=facts).order()
    assert seen == order.positions(0, len(order)).tolist()
