"""The load generator: autocannon, in a folder that git ignores, in processes of its own."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Load", "install", "start_load"]

FOLDER = Path("build/autocannon")
VERSION = "8.0.0"
_SCRIPT = Path(__file__).with_name("load.cjs")


@dataclass(frozen=True)
class Load:
    """Answers that the clients of one load received.

    Attributes:
        answers_per_s: answers with status 2xx.
        p50: milliseconds of an answer.
        p99: milliseconds of an answer.
        longest: milliseconds of an answer.
        refused: responses with status 503 per second.
        failed: responses with another status, and connections that broke.
        gap_s: longest time without an answer, seconds.
        cpu_ms: milliseconds of CPU that the server took for an answer, refusals included.
    """

    answers_per_s: float
    p50: float
    p99: float
    longest: float
    refused: float
    failed: int
    gap_s: float
    cpu_ms: float = 0.0


def install() -> None:
    """Install autocannon with npm, unless it is there."""
    package = FOLDER / "node_modules/autocannon/package.json"
    if package.exists() and json.loads(package.read_text())["version"] == VERSION:
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), f"autocannon@{VERSION}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class start_load:  # noqa: N801 - used as a function
    """Load a server in the background; ``result`` waits for the end."""

    def __init__(self, url: str, requests: list[dict[str, Any]], *, connections: int, seconds: float) -> None:
        """Start the generator."""
        settings = {
            "module": str((FOLDER / "node_modules/autocannon").resolve()),
            "url": url,
            "connections": connections,
            "seconds": seconds,
            "requests": requests,
        }
        self._process = subprocess.Popen(
            ["node", str(_SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(settings))
        self._process.stdin.close()

    def result(self) -> Load:
        """Return what the clients saw."""
        assert self._process.stdout is not None
        found = json.loads(self._process.stdout.read())
        if self._process.wait():
            raise RuntimeError("autocannon failed")
        statuses = {int(status): count for status, count in found["statuses"].items()}
        refused = statuses.pop(503, 0)
        others = sum(count for status, count in statuses.items() if not 200 <= status < 300)
        seconds = found["seconds"]
        return Load(
            answers_per_s=round(found["answered"] / seconds, 1),
            p50=round(found["p50"] or 0.0, 2),
            p99=round(found["p99"] or 0.0, 2),
            longest=round(found["longest"] or 0.0, 2),
            refused=round(refused / seconds, 1),
            failed=others + found["errors"],
            gap_s=round(found["gap"] / 1e3, 3),
        )
