"""Is the memory of an encode job flat? 10,000 and 100,000 short documents, waves of one size: ten times the waves.

    python -m benchmarks.encode.memory --bundle .quickstart/bundle [--documents 10000 100000] [--actors 1]

Runs ``jobs/encode.py`` in a process of its own on a local Ray, and reads the resident memory of the driver and of every
encoder actor from /proc until the job ends; the largest actor counts. Blocks of rows that an actor maps from Ray's
object store are shared pages: they belong to the store, whose size Ray bounds, and are told apart. Prints peaks in MB
and their ratios, then ``RESULT {json}``. Exit code 1 if a ratio is above 1.1. Linux only.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table

TOKENS = 12  # of a document, about
FLAT = 1.1
_INTERVAL_S = 0.1
_JOB = Path(__file__).resolve().parents[2] / "jobs" / "encode.py"


def write_corpus(path: Path, documents: int, vocabulary: list[str]) -> None:
    """Documents of words of the vocabulary; the first n of a longer corpus are those of a shorter one."""
    rng = random.Random(5)
    with path.open("w", encoding="utf-8") as file:
        for i in range(documents):
            text = " ".join(rng.choices(vocabulary, k=TOKENS - 2))
            file.write(json.dumps({"_id": f"d{i:08d}", "text": text}) + "\n")


def words_of(bundle: Path) -> list[str]:
    """Whole words of the bundle's tokenizer, one token each."""
    vocabulary = json.loads((bundle / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(word for word in vocabulary if word.isascii() and word.isalpha() and 3 <= len(word) <= 8)


def memory_of(pid: int) -> tuple[float, float] | None:
    """(peak so far, private now) of a process's resident memory, MB; None if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in fields:  # a zombie
        return None
    peak, now, shared = (int(fields[name].split()[0]) / 1e3 for name in ("VmHWM", "VmRSS", "RssShmem"))
    return peak, now - shared


def encoders_of(driver: int) -> Iterator[int]:
    """Processes of encoder actors among the driver's descendants."""
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
    for pid, title in titles.items():
        if title.startswith("ray::") and "Encoder" in title and driver in _ancestors(pid, parents):
            yield pid


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def run_job(bundle: Path, corpus: Path, folder: Path, actors: int) -> dict[str, float]:
    """Encode, and return the peaks in MB with the job's own counts."""
    settings = {
        "source.paths": json.dumps([str(corpus)]),
        "encode.bundle": str(bundle.absolute()),
        "encode.table": str(folder / "table"),
        "encode.wave_megabytes": "1",
        "encode.slice_megabytes": "1",
        "encode.actors": str(actors),
    }
    command = [sys.executable, str(_JOB)]
    for name, value in settings.items():
        command += [f"--{name}", value]
    peaks = dict.fromkeys(("driver_mb", "driver_private_mb", "actor_mb", "actor_private_mb"), 0.0)
    with (folder / "out").open("w") as out, (folder / "log").open("w") as log:
        job = subprocess.Popen(command, stdout=out, stderr=log)
        while job.poll() is None:
            watched = [("driver", job.pid), *(("actor", pid) for pid in encoders_of(job.pid))]
            for role, pid in watched:
                for name, value in zip((f"{role}_mb", f"{role}_private_mb"), memory_of(pid) or (0, 0), strict=True):
                    peaks[name] = max(peaks[name], value)
            time.sleep(_INTERVAL_S)
    if job.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'log').read_text()[-2000:]}")
    last = next(line for line in (folder / "out").read_text().splitlines() if line.startswith("RESULT "))
    result = json.loads(last.removeprefix("RESULT "))
    return peaks | {name: result[name] for name in ("documents", "waves", "seconds")}


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True, help="folder of the ONNX bundle")
    parser.add_argument("--documents", type=int, nargs=2, default=[10_000, 100_000], help="the two sizes")
    parser.add_argument("--actors", type=int, default=1, help="encoder actors")
    arguments = parser.parse_args()
    vocabulary = words_of(arguments.bundle)
    values: dict[str, float] = {}
    runs = []
    for documents in arguments.documents:
        size = f"{documents // 1000}k"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_corpus(folder / "corpus.jsonl", documents, vocabulary)
            runs.append(run_job(arguments.bundle, folder / "corpus.jsonl", folder, arguments.actors))
        values |= {f"{key}_{size}": round(value, 1) for key, value in runs[-1].items()}
    small, large = runs
    values["driver_ratio"] = round(large["driver_mb"] / small["driver_mb"], 3)
    values["actor_ratio"] = round(large["actor_mb"] / small["actor_mb"], 3)
    print_table("memory of an encode job", values)
    print_result(values)
    return 0 if max(values["driver_ratio"], values["actor_ratio"]) <= FLAT else 1


if __name__ == "__main__":
    raise SystemExit(main())
