from __future__ import annotations

import builtins
import copy
import errno
import inspect
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.errors import PenstockError

CLASSES = [getattr(errors, name) for name in errors.__all__]
BUILT_INS: dict[str, tuple[type[BaseException], ...]] = {
    "PenstockError": (Exception,),
    "BadRecordsError": (ValueError,),
    "ChangedSourceError": (RuntimeError,),
    "StallError": (TimeoutError, OSError),
    "WorkerError": (RuntimeError,),
    "OptionError": (ValueError,),
    "MissingExtraError": (ModuleNotFoundError, ImportError),
    "UnsafeForkError": (RuntimeError,),
    "MalformedLineError": (ValueError,),
    "UnserializableRecordError": (TypeError,),
    "SchemaMismatchError": (ValueError,),
    "CorruptFileError": (OSError,),
    "TruncatedFileError": (OSError, EOFError),
    "UnsupportedFileError": (OSError,),
    "RankMismatchError": (RuntimeError,),
    "RecordIndexError": (IndexError, LookupError),
    "StaleIndexError": (RuntimeError,),
    "CorruptIndexError": (ValueError,),
    "IndexExistsError": (ValueError,),
    "IndexTimeoutError": (TimeoutError,),
    "StorageError": (OSError,),
    "ObjectNotFoundError": (OSError, FileNotFoundError),
    "ObjectExistsError": (OSError, FileExistsError),
    "ObjectChangedError": (OSError,),
    "StoragePermissionError": (OSError, PermissionError),
    "StorageTimeoutError": (OSError, TimeoutError),
}
DETAILS = {"path": "s3://b/part-00000.jsonl", "line_number": 12, "offset": 1 << 40}
TEXT = st.text(max_size=50)
EVERY_CLASS = pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)


def raise_it(kind: type[PenstockError], message: str, details: dict[str, object]) -> None:
    raise kind(message, **details)


def test_every_error_of_the_module_is_listed_and_no_other_name() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert set(errors.__all__) == defined == set(BUILT_INS)


@EVERY_CLASS
def test_an_error_can_be_built_from_one_string_or_nothing(kind: type[PenstockError]) -> None:
    assert str(kind("what, why, what to do")) == "what, why, what to do"
    assert kind("text").args == ("text",)
    assert str(kind()) == ""


@EVERY_CLASS
def test_an_error_is_the_built_in_that_python_people_catch(kind: type[PenstockError]) -> None:
    assert issubclass(kind, PenstockError)
    for built_in in BUILT_INS[kind.__name__]:
        assert issubclass(kind, built_in)
        assert getattr(builtins, built_in.__name__) is built_in


@EVERY_CLASS
def test_an_error_says_what_it_is_for(kind: type[PenstockError]) -> None:
    assert inspect.getdoc(kind)
    assert kind.__doc__ != kind.__mro__[1].__doc__


@EVERY_CLASS
@given(message=TEXT, path=TEXT, number=st.integers())
def test_an_error_keeps_type_text_and_details_through_a_pickle(
    kind: type[PenstockError], message: str, path: str, number: int
) -> None:
    failure = kind(message, path=path, line_number=number)
    back: Any
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        back = pickle.loads(pickle.dumps(failure, protocol))
        assert type(back) is kind
        assert str(back) == message
        assert (back.path, back.line_number) == (path, number)
    assert str(copy.copy(failure)) == message


@pytest.mark.parametrize(
    "kind", [kind for kind in CLASSES if issubclass(kind, OSError)], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOENT, None])
def test_an_error_of_the_system_keeps_its_number(
    kind: type[PenstockError], number: int | None
) -> None:
    failure = kind("the disk is full", path="/a", errno=number)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(failure))))
    for each in (failure, again):
        assert isinstance(each, OSError)
        assert each.errno == number
        assert str(each) == "the disk is full"
        assert each.path == "/a"  # type: ignore[attr-defined]


@EVERY_CLASS
def test_a_chain_of_errors_survives_as_far_as_python_lets_it(kind: type[PenstockError]) -> None:
    failure = kind("the error", path="a")
    failure.__cause__ = LookupError("the cause")
    failure.add_note("a note")
    back = pickle.loads(pickle.dumps(failure))
    assert (str(back), back.path) == ("the error", "a")
    assert back.__notes__ == ["a note"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_errors_keep_their_type_through_a_worker_process(method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        for kind in CLASSES:
            details: dict[str, object] = dict(DETAILS)
            if issubclass(kind, OSError):
                details["errno"] = errno.ENOSPC
            failure = pool.submit(raise_it, kind, "fact, value, remedy", details).exception()
            assert type(failure) is kind
            assert str(failure) == "fact, value, remedy"
            assert {name: getattr(failure, name) for name in details} == details


@EVERY_CLASS
def test_fact_and_remedy_are_the_text_and_survive_a_pickle(kind: type[PenstockError]) -> None:
    failure = kind("There is an index.", remedy="Give overwrite=True.", path="a")
    again = pickle.loads(pickle.dumps(failure))
    for each in (failure, again):
        assert str(each) == "There is an index. Give overwrite=True."
        assert (each.fact, each.remedy) == ("There is an index.", "Give overwrite=True.")
    assert (kind("fact").fact, kind("fact").remedy) == ("fact", "")


def test_a_caller_can_replace_the_remedy() -> None:
    failure = errors.StorageError("The disk is full.", remedy="Give path=.", errno=errno.ENOSPC)
    failure.advise("Give --path.")
    again = pickle.loads(pickle.dumps(failure))
    for each in (failure, again):
        assert str(each) == "The disk is full. Give --path."
        assert (each.fact, each.remedy) == ("The disk is full.", "Give --path.")
