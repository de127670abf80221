"""The job reindex of one night, in a process that can be killed at a chosen moment.

``python -m tests.nights.night CONFIG KILL``: the process kills itself with SIGKILL after KILL calls of functions of
lsr_prod or by them, counted from the start of the work; 0: never. It prints the output of the job and the number of
calls.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import lsr_prod
from lsr_prod.jobs.reindex import reindex


def main() -> int:
    """Run the job and return its exit code."""
    config, kill = sys.argv[1], int(sys.argv[2])
    calls, ours = 0, str(Path(lsr_prod.__file__).parent)

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(ours)
        if 0 < kill == calls:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    code = reindex.run(["--config", config])
    sys.setprofile(None)
    print(f"CALLS {calls}")
    return code


if __name__ == "__main__":
    sys.exit(main())
