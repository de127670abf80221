"""One night as a function, for any orchestrator: run ``lsr-prod reindex`` and return its result."""

import json
import subprocess
from typing import Any


class WrongSettingError(Exception):
    """A setting is wrong, and nothing was written: a further attempt would end alike."""


def run_night(config: str) -> dict[str, Any]:
    """Run the nightly job to its end; it resumes what an interrupted attempt has begun.

    Returns:
        The values of its line ``RESULT {json}``.

    Raises:
        WrongSettingError: exit code 2.
        RuntimeError: another exit code; the job can be started again.
    """
    command = ["lsr-prod", "reindex", "--config", config]
    # Of the job, stdout has the result and stderr the log.
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 (no shell)
    if done.returncode == 2:
        raise WrongSettingError("lsr-prod reindex ended with exit code 2; its last line names the field")
    if done.returncode != 0:
        raise RuntimeError(f"lsr-prod reindex ended with exit code {done.returncode}; its last line says why")
    line = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("RESULT "))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return result
