"""`profile --as schema` and `check --schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.schema import (
    Array,
    Category,
    Number,
    SchemaModel,
    Set,
    fit_vocabulary,
    load_schema,
)
from tests.cli.commands import document, invoke, succeed

if TYPE_CHECKING:
    from pathlib import Path


def record(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "who": f"u{n % 20}",
        "at": f"2024-01-{1 + n % 28:02}T07:00",
        "ok": n % 2 == 0,
        "emb": [0.5, n, 2.5],
        "tags": ["a", "b", "c"][: n % 4],
        "levels": [n] * (n % 3),
        "note": f"a text of its own, number {n}",
        "user": {"age": n % 90, "e-mail": None, "visits": [{"n": n, "to": {"x": n}}] * (n % 3)},
        "user_age": n,
        "a b": n,
        "a_b": n,
        "a.b": n,
        "": n,
        "größe": {"": n},
        "items": [{"sku": f"s{n % 7}", "price": 1.5}] * (n % 5),
    }


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    with penstock.writer(str(path)) as sink:
        sink.write([record(n) for n in range(200)])
    return path


def test_a_proposed_schema_is_python_that_encodes_the_records(lines: Path) -> None:
    text = succeed("profile", lines, "--as", "schema")
    names: dict[str, Any] = {}
    exec(text, names)
    schema = names["schema"]
    assert [str(at) for at in schema.hyperparameters.requests] == [
        "record/id",
        "record/who",
        "record/at",
        "record/ok",
        "record/emb",
        "record/tags",
        "record/levels/levels",
        "record/user_age",
        "record/user_visits/n",
        "record/user_visits/to_x",
        "record/user_age_2",
        "record/a_b",
        "record/a_b_2",
        "record/a_b_3",
        "record/_",
        "record/gr__e_",
        "record/items/sku",
        "record/items/price",
    ]
    assert schema.hyperparameters.nodes["record/items"].max_length == 4
    queries = {str(at): query.text for at, query in schema.hyperparameters.queries.items()}
    assert queries["record/user_visits/to_x"] == "[*].user.visits[*].to.x"
    assert queries["record/a_b_2"] == "[*].a_b"
    assert queries["record/gr__e_"] == '[*]."größe".""'
    assert "# left out: note: nearly every record" in text
    assert "# left out: user.e-mail: values of the types null" in text
    (batch,) = penstock.DataLoader(str(lines), schema, batch_size=200)
    for address, field in batch.items():
        if address not in ("record/tags", "record/levels/levels"):
            assert (field.state != 1).all(), address


def test_a_proposed_schema_fits_the_records_it_was_made_of(lines: Path, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(succeed("profile", lines, "--as", "schema", "--json"))
    assert "all records fit" in succeed("check", lines, "--schema", file)
    names: dict[str, Any] = {}
    exec(succeed("profile", lines, "--as", "schema"), names)
    assert load_schema(file).hyperparameters == names["schema"].hyperparameters


def test_records_that_do_not_fit_are_findings_with_their_place(lines: Path, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(succeed("profile", lines, "--as", "schema", "--json"))
    size = lines.stat().st_size
    with lines.open("a") as more:
        more.write('{"id": {"no": "number"}}\n{"id": 3}\n{"emb": [1, 2]}\n')
    done = invoke("check", lines, "--schema", file)
    assert done.exit_code == 1
    assert f"record 200: record/id: {{'no': 'number'}} is no number. (at {size:,})" in done.stdout
    assert "record 202: record/emb: [1.0, 2.0] is no vector of 3 numbers" in done.stdout
    found = document("check", lines, "--schema", file, code=1)
    assert (found["findings"], found["kinds"]) == (2, {"misfit": 2})


def test_a_saved_model_is_a_schema_to_check_and_an_empty_leaf_is_named(
    lines: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model.json"
    SchemaModel(Number("id"), Number("nowhere"), batch_size=4).save(file)
    done = invoke("check", lines, "--schema", file)
    assert (done.exit_code, "record/nowhere" in done.stdout) == (1, True)


def test_what_a_schema_takes_in_part_is_listed_with_record_line_address_and_value(
    tmp_path: Path,
) -> None:
    path, file = tmp_path / "some.jsonl", tmp_path / "schema.json"
    records: list[dict[str, Any]] = [{"ev": [{"v": 1}], "u": {"a": 2}}] * 3
    records += [{"ev": "none", "u": {"a": 2}}, {"ev": [{"v": 1}], "u": [1, 2]}] * 12
    path.write_text("\n\n".join(map(json.dumps, records)) + "\n")
    leaves = (Array(Number("v"), name="ev"), Number("a", query="[*].u.a"))
    for strict in (False, True):
        SchemaModel(*leaves, batch_size=1, strict=strict).save(file)
        found = document("check", path, "--schema", file, code=1)
        assert (found["findings"], found["kinds"]) == (24, {"wrong structure": 24})
        assert [one["record"] for one in found["shown"]] == list(range(3, 27))
        assert [one["line"] for one in found["shown"]] == list(range(7, 55, 2))
        keys = ("path", "address", "value")
        assert [found["shown"][0][key] for key in keys] == [str(path), "record/ev/v", "'none'"]
        assert [found["shown"][1][key] for key in keys] == [str(path), "record/a", "[1, 2]"]
    done = invoke("check", path, "--schema", file, "--max", 1)
    assert f"{path}:7: wrong structure: record 3: record/ev/v: 'none' stands where" in done.stdout
    assert "24 findings (23 not shown)" in done.stdout


def test_a_misfit_is_listed_with_its_number_row_and_value(tmp_path: Path) -> None:
    path, file = tmp_path / "a.parquet", tmp_path / "schema.json"
    pq.write_table(pa.table({"x": ["1", "two"]}), path)
    SchemaModel(Number("x"), batch_size=1).save(file)
    (one,) = document("check", path, "--schema", file, code=1)["shown"]
    assert (one["record"], one["line"], one["value"]) == (1, None, "'two'")
    assert one["reason"].endswith("'two' is no number. (row 1)")


@pytest.mark.parametrize("leaf", [Category, Set])
def test_labels_of_texts_and_numbers_are_named_with_a_record_of_each(
    leaf: Any, tmp_path: Path
) -> None:
    path, file = tmp_path / "some.jsonl", tmp_path / "schema.json"
    path.write_text('{"k": null}\n{"k": 1}\n{"k": 2}\n{"k": "1"}\n{"k": "x"}\n')
    SchemaModel(leaf("k"), batch_size=1).save(file)
    (one,) = document("check", path, "--schema", file, code=1)["shown"]
    assert (one["kind"], one["record"], one["line"]) == ("mixed labels", 3, 4)
    assert "'1' of record 3 is a text, 1 of record 1 is none" in one["reason"]


def test_an_empty_vocabulary_is_no_fit(tmp_path: Path) -> None:
    path, file = tmp_path / "some.jsonl", tmp_path / "schema.json"
    model = SchemaModel(Set("s"), batch_size=1)
    model.save(file)
    path.write_text('{"s": []}\n')
    done = invoke("check", path, "--schema", file)
    assert (done.exit_code, "all records fit" in done.stdout) == (1, False)
    assert "empty vocabulary: record/s: no record has a label" in done.stdout
    fit_vocabulary(model, str(path))
    model.save(file)
    path.write_text('{"s": ["a"]}\n')
    done = invoke("check", path, "--schema", file)
    assert done.exit_code == 1
    assert "empty vocabulary: record/s: it is frozen" in done.stdout
    path.write_text("")
    assert "all records fit" not in invoke("check", path, "--schema", file).stdout


@pytest.mark.parametrize("text", ["no json", "[]", '{"fields": [{"kind": "numbr"}]}', "{}"])
def test_a_file_that_is_no_schema_is_refused_by_name(
    text: str, lines: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    done = invoke("check", lines, "--schema", file)
    assert done.exit_code in (2, 3)
    assert "numbr" in done.stderr if "numbr" in text else "bad.json" in done.stderr


def test_schemas_are_json_that_others_can_read(lines: Path) -> None:
    fields = json.loads(succeed("profile", lines, "--as", "schema", "--json"))["fields"]
    assert {"kind": "set", "name": "tags", "max_vocab_size": 8} in fields
