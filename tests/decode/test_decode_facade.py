from __future__ import annotations

import subprocess
import sys

import penstock.decode


def modules_after(program: str) -> set[str]:
    code = f"{program}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_the_room_offers_its_names() -> None:
    names = {"InferringDecoder", "OnBad", "TypedDecoder", "decode_line", "unify"}
    assert names <= set(penstock.decode.__all__) <= set(dir(penstock.decode))
    assert all(getattr(penstock.decode, name) is not None for name in penstock.decode.__all__)


def test_pyarrow_and_numpy_are_loaded_only_with_what_needs_them() -> None:
    heavy = {"pyarrow", "numpy"}
    assert not heavy & modules_after("import penstock.decode")
    assert not heavy & modules_after("from penstock.decode import decode_line, OnBad")
    assert heavy <= modules_after("from penstock.decode import TypedDecoder")
