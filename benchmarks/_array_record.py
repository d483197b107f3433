"""The peer ArrayRecord, run by the Python of an environment of its own; it stores bytes."""

from __future__ import annotations

from pathlib import Path

import orjson
from _access import Access
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter


def convert(source: str, target: str) -> None:
    # Groups of one are what its authors advise for random access.
    writer = ArrayRecordWriter(f"{target}/all.array_record", "group_size:1")
    with Path(source).open("rb") as lines:
        for line in lines:
            writer.write(line)
    writer.close()


def opened(path: str) -> tuple:
    whole = ArrayRecordDataSource(f"{path}/all.array_record")

    def many(numbers: list[int]) -> list[object]:
        return list(map(orjson.loads, whole.__getitems__(numbers)))

    return lambda number: orjson.loads(whole[number]), many


if __name__ == "__main__":
    Access(opened, convert).serve()
