"""`profile --as schema` and `check --schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.schema import Number, SchemaModel, load_schema
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
