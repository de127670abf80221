"""What does a night cost that changes nothing, and one that changes 1 % of the documents?

    python -m benchmarks.encode.nights --bundle .quickstart/bundle [--documents 1000000] [--files 100]

A corpus of files is encoded, then encoded again without a change, then with a new file of 1 % of the documents, then
with 1 % of the files replaced by other texts of the same ids. The jobs are real; the encoder draws the terms of a text
by its hash, since the model is not the question.

Bytes read are those of the source files that are read, and of everything that the driver and the encoders read from the
table and its quarantine; the log of a Delta table, which delta-rs reads, is not included. ``parts_read`` of a night
that encodes nothing is the number of objects that the driver opens, except plans and other records. ``share`` divides
bytes read by 1 % of what the same step is of the whole: bytes of the corpus and of the table for reading, bytes of the
table for writing. Seconds are those of the job after Ray has started; CPU seconds are those of the driver.

Prints a table per night, then ``RESULT {json}``. Exit code 1 if the unchanged night opens a part or reads a byte of the
source, or takes 5 s.
"""

import argparse
import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment
from lsr_prod.encoding import EncodeSummary, check_encode, encode_corpus
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.inference import Counters
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.storage import Store
from lsr_prod.storage.formats.sparse import SparseBatch

_TERMS = 100  # of a document
_DISTANCES = np.random.default_rng(0).integers(1, 440, 1 << 20)  # of terms
_WORDS = [f"word{i}" for i in range(2000)]
_TEXT_WORDS = 80
_SECONDS = 5.0
_RECORDS = ("_lsr_prod/", "_delta_log/")  # folders of a table without parts of committed rows


class DrawnEncoder:
    """Draws the terms and weights of a text by its hash."""

    def __init__(self) -> None:
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """Work so far."""
        return self._counters

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return a vector per text: its terms are sums of distances that begin at a place given by its hash."""
        count = len(texts)
        starts = np.array([zlib.crc32(text.encode()) for text in texts], np.int64)
        places = (starts[:, None] + np.arange(_TERMS)) % len(_DISTANCES)
        terms = np.cumsum(_DISTANCES[places], axis=1, dtype=np.int32).ravel()
        self._counters += Counters(count, count * _TEXT_WORDS, count * _TEXT_WORDS)
        weights = (terms % 250 + 1).astype(np.float32) / np.float32(100)
        return SparseBatch(np.arange(count + 1) * _TERMS, terms, weights)


def open_drawn() -> DrawnEncoder:
    """Open the encoder; a factory calls it by name."""
    return DrawnEncoder()


def write_file(path: Path, ids: range, seed: int) -> int:
    """Write documents, and return their bytes; the file is old, so that its digest is kept."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in ids:
            words = rng.choice(len(_WORDS), _TEXT_WORDS)
            text = " ".join(_WORDS[word] for word in words)
            file.write(json.dumps({"_id": f"https://example.org/documents/{number:09d}", "text": text}) + "\n")
    os.utime(path, (1e9 + seed, 1e9 + seed))
    return path.stat().st_size


def encode(deployment: Deployment) -> tuple[EncodeSummary, dict[str, float]]:
    """Run the job, and return its summary and figures."""
    began, cpu = time.perf_counter(), time.process_time()
    names: set[str] = set()
    with noted_names(names):
        work = check_encode(deployment)
        read = int(np.sum(work.plan.slice_table["size"].to_numpy()))
        done = work.found is not None and work.plan.base is None
        factory = EncoderFactory(f"{__spec__.name}:open_drawn", {})
        summary = encode_corpus(deployment, checked=replace(work, factory=factory))
    figures: dict[str, float] = {
        "documents": summary.documents,
        "encoded": summary.encoded,
        "seconds": round(time.perf_counter() - began, 2),
        "driver_cpu_seconds": round(time.process_time() - cpu, 2),
        "requests": summary.requests,
        "source_bytes_read": 0 if done else read,
        "bytes_read": summary.bytes_read,
        "bytes_written": summary.bytes_written,
        "table_bytes": summary.table_bytes,
    }
    if not summary.encoded:  # no encoder was started, so this process read all that was read
        figures["parts_read"] = sum(not name.startswith(_RECORDS) for name in names)
    return summary, figures


@contextmanager
def noted_names(names: set[str]) -> Iterator[None]:
    """Add the names of objects that this process reads from a store."""

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(store: Store, name: str, *arguments: Any, **keywords: Any) -> Any:
            names.add(name)
            return read(store, name, *arguments, **keywords)

        return call

    with ExitStack() as stack:
        for method in ("get", "read_range", "open_reader"):
            stack.enter_context(patch.object(Store, method, noted(getattr(Store, method))))
        yield


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True, help="folder of any ONNX bundle; its model is not used")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.files % 100 or arguments.documents % arguments.files:
        parser.error("--files must be a multiple of 100, and --documents one of --files")
    count, per_file = arguments.documents, arguments.documents // arguments.files
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        corpus = Path(name) / "corpus"
        corpus.mkdir()
        files = [corpus / f"{number:05d}.jsonl" for number in range(arguments.files)]
        size = sum(write_file(file, range(i * per_file, (i + 1) * per_file), i) for i, file in enumerate(files))
        encode_settings = {"bundle": str(arguments.bundle.absolute()), "table": f"{name}/table", "impact_step": 0.01}
        deployment = Deployment.model_validate(
            {
                "source": {"paths": [str(corpus)]},
                "encode": {**encode_settings, "probe_documents": 16},
                "ray": {},
            }
        )
        nights = {}
        with ray_session(deployment.ray):
            _, nights["first"] = encode(deployment)
            _, nights["unchanged"] = encode(deployment)
            write_file(corpus / "new.jsonl", range(count, count + count // 100), 10_001)
            _, nights["new"] = encode(deployment)
            for i in range(0, arguments.files, 100):
                write_file(files[i], range(i * per_file, (i + 1) * per_file), 20_000 + i)
            _, nights["changed"] = encode(deployment)
    table = nights["first"]["table_bytes"]
    for night, figures in nights.items():
        if night in ("new", "changed"):
            read = figures["source_bytes_read"] + figures["bytes_read"]
            figures["read_share"] = round(read / (0.01 * (size + table)), 2)
            figures["written_share"] = round(figures["bytes_written"] / (0.01 * table), 2)
        print_table(night, figures)
        values |= {f"{night}_{key}": value for key, value in figures.items()}
    print_result(values)
    unchanged = nights["unchanged"]
    read = unchanged["source_bytes_read"] + unchanged["parts_read"]
    return 0 if read == 0 and unchanged["seconds"] < _SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
