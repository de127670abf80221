"""Which share of the time are the encoders busy? Real waves, with an encoder that sleeps in place of a model.

    python -m benchmarks.encode.pipeline --bundle .quickstart/bundle [--encoders 2 8 32] [--waves 8] [--wave-seconds 10]

The encoder sleeps in proportion to the tokens of a call, so that any number of encoders fits on any machine: a local
Ray with as many logical cores as encoders. Reading, the id lookup, the parts, the markers and the commits are those of
a job. The sleep is scaled so that a wave keeps every encoder busy for ``--wave-seconds``; its documents have a
log-normal number of words, and a wave has four cells per encoder.

Busy share: seconds in the model, summed over the encoders, divided by the number of encoders and by the seconds between
the start of the first and the end of the last call. The first call of each encoder waits until all of them have
started, since a small machine starts 32 processes slower than a cluster does.

Prints one row per number of encoders, then ``RESULT {json}`` with ``busy_share_2`` and so on. Exit code 1 if a share is
below 0.95.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.job import _encode
from lsr_prod.encoding.prepare import prepare
from lsr_prod.inference import Counters
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.storage.formats.sparse import SparseBatch

BUSY = 0.95
_CELLS_PER_ENCODER = 4
_WORDS = 120  # of a document, median
_SIGMA = 0.5  # of the logarithm of the number of words
_TERMS = 30_000
_START_S = 300.0  # until every encoder has started


class SleepingEncoder:
    """Sleeps for each token, and leaves a line (begin, end) of each call.

    Args:
        folder: for the lines.
        encoders: number of encoders that the first call waits for.
        tokens_per_s: speed.
    """

    def __init__(self, folder: str, encoders: int, tokens_per_s: float) -> None:
        # The child process of the probe is no encoder of the pool.
        self._folder = Path(folder) if "ray::" in _title() else None
        self._encoders, self._tokens_per_s = encoders, tokens_per_s
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """Work so far."""
        return self._counters

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return a term per text, its length, after a while."""
        words = [text.count(" ") + 1 for text in texts]
        if self._folder is not None:
            self._wait_for_all(self._folder)
            begin = time.time()
            time.sleep(sum(words) / self._tokens_per_s)
            with (self._folder / str(os.getpid())).open("a") as file:
                file.write(f"{begin} {time.time()}\n")
        self._counters += Counters(len(words), sum(words), sum(words))
        terms = np.array(words, np.int32) % _TERMS
        return SparseBatch(np.arange(len(texts) + 1), terms, np.ones(len(texts), np.float32))

    def _wait_for_all(self, folder: Path) -> None:
        (folder / str(os.getpid())).touch()
        until = time.monotonic() + _START_S
        while len(list(folder.iterdir())) < self._encoders:
            if time.monotonic() > until:
                raise TimeoutError(f"{self._encoders} encoders did not start within {_START_S:g} s")
            time.sleep(0.05)


def _title() -> str:
    return Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")


def open_sleeping(folder: str, encoders: int, tokens_per_s: float) -> SleepingEncoder:
    """Open the encoder; a factory calls it by name."""
    return SleepingEncoder(folder, encoders, tokens_per_s)


def write_corpus(folder: Path, megabytes: int, waves: int) -> int:
    """Write a file per wave, of a bit less than ``megabytes``; return the words of one."""
    rng = random.Random(5)
    folder.mkdir()
    total = 0
    for wave in range(waves):
        size = 0
        with (folder / f"{wave:04d}.jsonl").open("w", encoding="utf-8") as file:
            while size < megabytes * 1_000_000 - 20_000:
                count = max(int(rng.lognormvariate(np.log(_WORDS), _SIGMA)), 1)
                text = " ".join(f"w{rng.randrange(_TERMS)}" for _ in range(count))
                size += file.write(json.dumps({"_id": f"d{rng.getrandbits(64):016x}", "text": text}) + "\n")
                total += count
    return total // waves


def run(bundle: Path, folder: Path, encoders: int, waves: int, wave_seconds: float) -> dict[str, float | str]:
    """Encode a corpus, and return the figures of the run."""
    megabytes = max(encoders // 8, 1)
    words = write_corpus(folder / "corpus", megabytes, waves)
    timeline = folder / "timeline"
    timeline.mkdir()
    deployment = Deployment.model_validate(
        {
            "source": {"paths": [str(folder / "corpus")]},
            "encode": {
                "bundle": str(bundle.absolute()),
                "table": str(folder / "table"),
                "wave_megabytes": megabytes,
                "slice_megabytes": max(megabytes // 4, 1),
                "buckets": _CELLS_PER_ENCODER * encoders,
                "actors": encoders,
                "impact_step": 0.01,
                "probe_documents": 16,
            },
            "ray": {"num_cpus": encoders},
        }
    )
    arguments = {"folder": str(timeline), "encoders": encoders, "tokens_per_s": words / encoders / wave_seconds}
    factory = EncoderFactory(f"{__spec__.name}:open_sleeping", arguments)
    with ray_session(deployment.ray):
        summary = _encode(replace(prepare(deployment), factory=factory))
    calls = np.array([line.split() for path in timeline.iterdir() for line in path.read_text().splitlines()], float)
    seconds = float(calls[:, 1].max() - calls[:, 0].min())
    return {
        "busy_share": round(float((calls[:, 1] - calls[:, 0]).sum()) / (encoders * seconds), 4),
        "seconds": round(seconds, 1),
        "model_seconds": round(float((calls[:, 1] - calls[:, 0]).sum()) / encoders, 1),
        "documents": summary.documents,
        "table_digest": summary.table_digest[:16],
    }


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True, help="folder of any ONNX bundle; its model is not used")
    parser.add_argument("--encoders", type=int, nargs="+", default=[2, 8, 32], help="numbers of encoders")
    parser.add_argument("--waves", type=int, default=8, help="waves of a run")
    parser.add_argument("--wave-seconds", type=float, default=10.0, help="seconds of a wave in the model")
    arguments = parser.parse_args()
    values: dict[str, float | str] = {"waves": arguments.waves, "wave_seconds": arguments.wave_seconds}
    for encoders in arguments.encoders:
        with tempfile.TemporaryDirectory() as name:
            found = run(arguments.bundle, Path(name), encoders, arguments.waves, arguments.wave_seconds)
        print_table(f"{encoders} encoders", found)
        sys.stdout.flush()
        values |= {f"{key}_{encoders}": value for key, value in found.items()}
    print_result(values)
    return 0 if all(float(values[f"busy_share_{n}"]) >= BUSY for n in arguments.encoders) else 1


if __name__ == "__main__":
    raise SystemExit(main())
