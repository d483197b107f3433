"""What the tests of drafts run in processes of their own."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from penstock.errors import ObjectExistsError
from penstock.storage import LocalStore
from penstock.storage._drafts import publish_by_claim
from tests.faults.child import wait_for_the_others


def hold_a_draft(directory: str, content: str) -> None:
    """Begin a draft and wait; publish it when told to."""
    draft = LocalStore().draft(directory, "held")
    draft.write(content.encode())
    print("held", flush=True)
    name = sys.stdin.readline().strip()
    if name:
        draft.publish(f"{directory}/{name}", exclusive=True)


def fork_and_let_the_child(how: str, directory: str) -> dict[str, object]:
    """Fork while a draft is open; the child ends in one of several ways, then the parent writes."""
    draft = LocalStore().draft(directory, "forked")
    draft.write(b"parent\n")
    child = os.fork()
    if child == 0:
        status = 3
        try:
            if how == "write":
                draft.write(b"child\n")
            elif how == "publish":
                draft.publish(f"{directory}/child", exclusive=True)
            elif how == "discard":
                draft.discard()
            elif how == "exit":
                sys.exit(0)
            elif how == "drop":
                del draft
            status = 0
        except RuntimeError as refused:
            print(type(refused).__name__, file=sys.stderr)
            status = 7
        finally:
            if how != "exit":
                os._exit(status)
    _, status = os.waitpid(child, 0)
    hidden = [name for name in os.listdir(directory) if name.endswith(".penstock-tmp")]  # noqa: PTH208
    cleared = [entry.name for entry in LocalStore().clear_dead_drafts(directory)]
    draft.write(b"parent again\n")
    draft.publish(f"{directory}/parent", exclusive=True)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "hidden": len(hidden),
        "cleared": cleared,
        "names": sorted(os.listdir(directory)),  # noqa: PTH208
    }


def fork_a_child_that_outlives(directory: str) -> int:
    """Leave a draft to a forked child that sleeps; return the child's number."""
    draft = LocalStore().draft(directory, "orphaned")
    draft.write(b"x")
    child = os.fork()
    if child == 0:
        for stream in (0, 1, 2):
            os.close(stream)
        time.sleep(600)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    return child


def claim_by_link(directory: str, who: int, names: int) -> list[str]:
    return _claim(directory, who, names, by_link=True)


def claim_by_claim(directory: str, who: int, names: int) -> list[str]:
    return _claim(directory, who, names, by_link=False)


def _claim(directory: str, who: int, names: int, *, by_link: bool) -> list[str]:
    """Try to publish exclusively under every name; return those won."""
    wait_for_the_others()
    won = []
    for number in range(names):
        name = f"{directory}/{number}"
        draft = LocalStore().draft(directory, f"{who}")
        draft.write(b"%d of %d" % (number, who))
        try:
            if by_link:
                draft.publish(name, exclusive=True)
            else:
                publish_by_claim(draft.path, name)  # As where links are missing.
        except ObjectExistsError:
            pass
        else:
            won.append(str(number))
        draft.discard()
    return won


def hold_a_claim(directory: str, base: str) -> None:
    """Claim a name as a publisher does, and wait."""
    from penstock.storage._locks import create_locked

    assert create_locked(f"{directory}/.{base}.penstock-claim") >= 0
    print("claimed", flush=True)
    sys.stdin.readline()
    Path(f"{directory}/.{base}.penstock-claim").unlink()


def publish_by_claim_once(directory: str, base: str) -> str:
    draft = LocalStore().draft(directory, "late")
    draft.write(b"late")
    print("waiting", flush=True)
    publish_by_claim(draft.path, f"{directory}/{base}")
    draft.discard()
    return "published"


def write_with_umask(directory: str, mask: int) -> None:
    os.umask(mask)
    draft = LocalStore().draft(f"{directory}/made", "x")
    draft.publish(f"{directory}/made/x", exclusive=True)
