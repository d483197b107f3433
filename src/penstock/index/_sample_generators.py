"""Sample generators: from a line of text to the samples that an indexer finds again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SampleData:
    """One sample, and the file in which its generator stores it."""

    sample_bytes: bytes
    file_path: str


class SampleGeneratorInterface(Protocol):
    """Turns lines of text into samples, which it stores one after the other.

    `get_sample_schema() -> SampleSchema | None` is optional: the arrays that samples consist of.
    """

    def prepare(self, text_file_path: str) -> None:
        """Begin a file."""

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        """Return the samples of a line; each follows the one before it in its file."""

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001 (the protocol's own words)
        """End a file."""


def noop_sample_processing(text_line: bytes, text_file_path: str) -> list[SampleData]:
    """Return a line as the only sample of itself."""
    return [SampleData(text_line, text_file_path)]


class NOOPSampleGenerator:
    """Makes every line a sample of its own file; `FileTextLinesIndexer` does so without it."""

    _path = ""

    def prepare(self, text_file_path: str) -> None:
        """Begin a file."""
        self._path = text_file_path

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        """Return the line."""
        return noop_sample_processing(text_line, self._path)

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001 (the protocol's own words)
        """End a file."""

    def get_sample_schema(self) -> None:
        """Return None: a sample is a line."""
