"""Run the code of a document: `python documents.py DOCUMENT`, in the directory it may write to.

Its ```python fences run in order in one namespace, as one program would; `await`, `async for` and
`async with` may stand at the top level. Of its ```console fences the lines `$ penstock …` run.
A fence ```python no-run is only shown.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
import textwrap
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

_OPENING = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`]*)$")


@dataclass(frozen=True)
class Fence:
    info: str
    line: int
    """Where its first line of code stands in the document, counted from 1."""
    text: str

    @property
    def commands(self) -> list[str]:
        """The `penstock` command lines of a console fence, continuation lines joined."""
        if self.info != "console":
            return []
        typed = re.findall(r"^\$ (.*(?:(?<=\\)\n.*)*)$", self.text, re.MULTILINE)
        return [command for command in typed if re.match(r"penstock\b", command)]

    @property
    def runs(self) -> bool:
        return self.info == "python" or bool(self.commands)


def fences(document: Path) -> list[Fence]:
    """Return all fences of a document, those that do not run as well."""
    lines = document.read_text(encoding="utf-8").splitlines()
    found = []
    start = 0
    opening = None
    for number, line in enumerate(lines, start=1):
        if opening is None:
            opening = _OPENING.match(line)
            start = number + 1
        elif line.strip() == opening["ticks"]:
            info = opening["info"].strip()
            if re.match(r"(py|ipython)", info, re.IGNORECASE) and info not in (
                "python",
                "python no-run",
            ):
                raise ValueError(f"{document}:{start - 1}: a fence {info!r} would never run")
            text = textwrap.dedent("\n".join(lines[start - 1 : number - 1])) + "\n"
            found.append(Fence(info, start, text))
            opening = None
    if opening is not None:
        raise ValueError(f"{document}:{start - 1}: this fence is never closed")
    return found


def _compile(fence: Fence, document: Path) -> CodeType:
    # Blank lines before it make every error, also one of syntax, name the line in the document.
    source = "\n" * (fence.line - 1) + fence.text
    code = compile(source, str(document), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    return code


def _run_python(fence: Fence, document: Path, runner: asyncio.Runner, program: ModuleType) -> None:
    code = _compile(fence, document)
    if code.co_flags & inspect.CO_COROUTINE:

        async def on_the_loop() -> None:
            await eval(code, vars(program))

        runner.run(on_the_loop())
    else:
        # Outside of the loop, so that a fence may call asyncio.run itself.
        exec(code, vars(program))


def run(document: Path) -> int:
    """Run everything in a document that runs; return the number of fences that did."""
    program = sys.modules["__main__"] = ModuleType("__main__")
    ran = 0
    with asyncio.Runner() as runner:
        for fence in fences(document):
            try:
                if fence.info == "python":
                    _run_python(fence, document, runner, program)
                sys.stdout.flush()
                for command in fence.commands:
                    subprocess.run(["bash", "-c", command], check=True)
            except BaseException:  # noqa: BLE001 (reported, and the run ends)
                # Also SystemExit: a fence that ends the program would hide those after it.
                traceback.print_exc()
                print(f"{document}:{fence.line}: this fence failed", file=sys.stderr)
                sys.exit(1)
            ran += fence.runs
    return ran


if __name__ == "__main__":
    _document = Path(sys.argv[1])
    print(f"{_document}: ran {run(_document)} fences")
