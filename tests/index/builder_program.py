"""Builds a checked index; a process of its own, to be killed: FOLDER WORKERS UNIT_BYTES [LIMIT].

Prints what an error says, and ends with 1 for an index that is there, 2 for a disk that is full.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from penstock.errors import IndexExistsError
from tests.index.checked import build


def main(folder: str, workers: str, unit_bytes: str, limit: str = "") -> int:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    try:
        build(
            Path(folder),
            validate=True,
            profile=True,
            num_workers=int(workers),
            unit_bytes=int(unit_bytes),
        )
    except IndexExistsError as failure:
        print(failure)
        return 1
    except OSError as failure:
        print(failure)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
