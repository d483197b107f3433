"""The lines of some files into a writer: all of them, or none that stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.cli._reading import BadLine, Skipped, describe, read_fast, read_lines, texts_of
from penstock.cli._signals import uninterrupted
from penstock.cli._units import counted
from penstock.errors import MalformedLineError
from penstock.jsonl import JsonlDirWriterSync, JsonlFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli._reading import Text
    from penstock.cli._terminal import Progress
    from penstock.jsonl import JsonlWriterSync
    from penstock.storage import StorageOptions


@dataclass(slots=True)
class Copy:
    """One run from files to a writer, and how far it has come."""

    writer: JsonlWriterSync
    skips: bool
    """Leave bad lines out; else the first one ends the run."""
    most_bytes: int
    """Of text in a step: no more than a shard takes."""
    most_lines: int | None
    options: StorageOptions
    skipped: Skipped = field(default_factory=Skipped)
    records: int = 0
    text_bytes: int = 0
    complete: bool = False

    @property
    def published(self) -> list[str]:
        """The files that are visible so far."""
        if isinstance(self.writer, JsonlDirWriterSync):
            return self.writer.published
        return [self.writer.path] if self.complete else []

    def run(self, files: Sequence[JsonlFile], progress: Progress) -> None:
        """Copy every good line; after a failure or Ctrl-C take back what was published."""
        try:
            with self.writer as writer:
                for text in self._steps(self._texts(files, progress)):
                    # Else a shard could appear between its publication and our knowing of it.
                    with uninterrupted():
                        writer.write_raw(text)
                with uninterrupted():
                    writer.close()
                    self.complete = True
        except BaseException as failure:
            self._take_back(failure)
            raise
        self.skipped.finish()

    def _texts(self, files: Sequence[JsonlFile], progress: Progress) -> Iterator[bytes]:
        """Yield the good lines of all files, each with its newline, in large pieces."""
        for file in files:
            for text in texts_of(file, progress):
                lines, records = self._good_lines(text)
                self.records += records
                self.text_bytes += len(lines)
                yield lines

    def _good_lines(self, text: Text) -> tuple[bytes, int]:
        values = read_fast(text)
        if values is not None:
            return text.text if text.text.endswith(b"\n") else text.text + b"\n", len(values)
        good = []
        for line in read_lines(text):
            if not isinstance(line, BadLine):
                good.append(line.text + b"\n")
            elif self.skips:
                self.skipped.add(line)
            else:
                message = f"{describe(line)}. --on-error skip leaves such lines out."
                raise MalformedLineError(message, path=line.path, line_number=line.number)
        return b"".join(good), len(good)

    def _steps(self, texts: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the same, about a shard at most at a time, so that Ctrl-C need not wait long."""
        for text in texts:
            # Lines are counted only where a limit could be below what the text holds.
            count = text.count(b"\n") if self.most_lines or len(text) > self.most_bytes else 0
            most = min(self.most_lines or count, self.most_bytes * count // max(1, len(text)))
            if count <= most:
                yield text
                continue
            lines = text.split(b"\n")[:-1]
            step = max(1, most)
            for start in range(0, count, step):
                yield b"\n".join(lines[start : start + step]) + b"\n"

    def _take_back(self, failure: BaseException) -> None:
        """Remove the shards that were published, and note on the error what became of them."""
        published = self.published
        if self.complete:
            failure.add_note(f"{self.writer.path} was complete by then and stays.")
            return
        if not published:
            failure.add_note("Nothing was written.")
            return
        left = []
        with uninterrupted(tidying=True):
            for path in published:
                try:
                    JsonlFile(path, self.options).delete_sync()
                except OSError:
                    left.append(path)
        removed = counted(len(published) - len(left), "shard")
        failure.add_note(f"{removed} that this run had published: removed again.")
        if left:
            failure.add_note(f"Could not be removed, though complete: {', '.join(left)}")
