"""One view of how far work is."""

from __future__ import annotations

import sys

import pytest

from penstock.errors import OptionError
from penstock.work import Bar, View, viewed


class Total:
    def __init__(self) -> None:
        self.sum = 0

    def add(self, count: int) -> None:
        self.sum += count


def test_a_view_of_the_callers_own_is_told() -> None:
    total = Total()
    with viewed(total, 10, "counting") as view:
        view.add(7)
        view.add(-2)
    assert view is total
    assert total.sum == 5


def test_a_bar_is_shown_when_told(capsys: pytest.CaptureFixture[str]) -> None:
    with viewed(True, 10, "counting", unit="records") as view:  # noqa: FBT003
        assert isinstance(view, View)
        view.add(7)
        view.add(-7)
        view.add(10)
    assert "counting" in capsys.readouterr().err


@pytest.mark.parametrize("shown", [None, False])
def test_no_bar_is_shown_where_nobody_looks(
    shown: bool | None,  # noqa: FBT001
    capsys: pytest.CaptureFixture[str],
) -> None:
    with viewed(shown, 10, "counting") as view:
        view.add(10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("shown", [None, True, False])
def test_work_goes_on_without_standard_error(
    shown: bool | None,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    closed = (tmp_path_factory.mktemp("closed") / "a").open("w")
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with Bar(10, shown, "counting") as view:
            view.add(10)


@pytest.mark.parametrize("wrong", [1, "yes", object])
def test_what_is_no_view_is_refused(wrong: object) -> None:
    with pytest.raises(OptionError, match=r"progress=.*: expected True"), viewed(wrong, 1, "x"):  # type: ignore[arg-type]
        pass
