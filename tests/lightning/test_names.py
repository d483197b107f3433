"""The names of penstock.lightning, and what they need."""

from __future__ import annotations

import subprocess
import sys

import penstock.lightning as j2v
import penstock.schema

NAMES = """
CustomDataModule PolarsDataModule StreamingDataModule DataModule Writer SchemaMixin
preprocess Preprocessor PreprocessorMode PREPROCESSORS EngineOptions shard_info
Array Number Category Set Entity DateParts Vector Text Leaf Address where predicate
Schema SchemaModel fit_vocabulary RunningStats check_batch register_leaf
Strata Suffix ShardingStrategy Overflow Tokens ValueState TensorKey
"""

WITHOUT_LIGHTNING = """
import sys
sys.modules["lightning"] = None
import penstock.lightning as j2v
from penstock.errors import MissingExtraError
j2v.SchemaModel(j2v.Number("n"), batch_size=2)
for name in "CustomDataModule DataModule SchemaMixin StreamingDataModule Writer".split():
    try:
        getattr(j2v, name)
    except MissingExtraError as why:
        assert "pip install 'penstock[lightning]'" in str(why)
    else:
        raise AssertionError(name)
"""


def test_every_name_of_json2vec_and_of_the_schema_is_here() -> None:
    assert set(NAMES.split()) <= set(j2v.__all__)
    assert set(penstock.schema.__all__) <= set(j2v.__all__)
    assert all(hasattr(j2v, name) for name in j2v.__all__)
    assert j2v.Tokens is j2v.ValueState


def test_without_lightning_the_schema_works_and_other_names_say_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIGHTNING], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
