"""The ceiling of random access: slices of a map, each one decoded."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import orjson
import zstandard
from _access import Access, link_into


def convert(source: str, target: str) -> None:
    """Find the lines; how long that takes is not what is measured here."""
    text = link_into(source, target).read_bytes()
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    np.save(Path(target) / "ends.npy", ends)


def opened(path: str) -> tuple:
    """Return the loops that one would write by hand, with every offset in a list."""
    loads = orjson.loads
    (file,) = Path(path).glob("*.jsonl")
    with file.open("rb") as text:
        mapped = mmap.mmap(text.fileno(), 0, access=mmap.ACCESS_READ)
    ends = np.load(Path(path) / "ends.npy").tolist()
    starts = [0, *ends[:-1]]

    def one(number: int) -> object:
        return loads(mapped[starts[number] : ends[number]])

    def many(numbers: list[int]) -> list[object]:
        return [loads(mapped[starts[number] : ends[number]]) for number in numbers]

    return one, many


def read_in_order(path: str) -> int:
    """Decode every line of the one zstd file of a folder."""
    (name,) = Path(path).glob("*.zst")
    count, rest = 0, b""
    with (
        name.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as text,
    ):
        while block := text.read(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                orjson.loads(line)
                count += 1
    return count


if __name__ == "__main__":
    Access(opened, convert).serve({"read_in_order": read_in_order})
