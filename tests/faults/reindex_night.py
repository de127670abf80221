"""The index job of one night, in a process that can be killed at a chosen moment.

``python -m tests.faults.reindex_night ROOT OUTPUT KILL``: the index ``ROOT/OUTPUT`` follows the table.
The process kills itself with SIGKILL after KILL calls of functions of lsr_prod or by them, counted from the start of
the work; 0: never. It prints one line of JSON: the number of calls and the summary.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import lsr_prod
from lsr_prod.indexing import build_index
from tests.indexing.increments import deployment

__all__ = ["SETTINGS"]

SETTINGS = {"shards": 2, "max_delta": 0.15, "max_delta_shards": 2}


def main() -> None:
    """Build the index, count Python calls, and kill the process at the chosen call."""
    root, output, kill = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    calls, ours = 0, str(Path(lsr_prod.__file__).parent)

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(ours)
        if 0 < kill == calls:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    summary = build_index(deployment(root, output, **SETTINGS))
    sys.setprofile(None)
    print(json.dumps({"calls": calls, **summary.result()}))


if __name__ == "__main__":
    main()
