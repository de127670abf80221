"""Is a Ray Data pipeline as fast as the encode job with the same actors?

    python -m benchmarks.encode.ray_data --corpus corpus.jsonl --bundle BUNDLE [--actors 2] [--runs 3]

Both encode the same JSON lines into a new table, in turns, on one local Ray with two more logical cores than actors:
the job as ``lsr-prod encode`` does, the pipeline with ``read_json``, ``SparseEncode`` and ``write_sparse_table``. The
time is that of the whole run, from the check of the settings to the digest of the table; Ray has started before.

Prints a row per run and ``RESULT {json}``: documents per second (medians), their ratio, and whether all tables have one
digest, which holds for bundles in fp32; products of an int8 bundle depend on the other texts of a batch. Exit code 1 if
the ratio is below 0.9.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import ray.data

from lsr_prod.cluster import ray_session
from lsr_prod.config import Deployment, RaySettings
from lsr_prod.encoding import encode_corpus
from lsr_prod.jobs.terminal.output import print_result
from lsr_prod.jobs.terminal.tables import print_columns
from lsr_prod.ray_data import SparseEncode, write_sparse_table

GOAL = 0.9


def run(way: str, deployment: Deployment, corpus: Path) -> dict[str, float | str]:
    """Encode the corpus, and return the figures of the run."""
    began = time.monotonic()
    if way == "job":
        job = encode_corpus(deployment)
        documents, digest = job.documents, job.table_digest
    else:
        dataset = ray.data.read_json(str(corpus), lines=True)
        written = write_sparse_table(dataset.map_batches(SparseEncode, **SparseEncode.options(deployment)), deployment)
        documents, digest = written.documents, written.table_digest
    seconds = time.monotonic() - began
    return {"way": way, "seconds": seconds, "docs_per_s": documents / seconds, "digest": digest or ""}


def main() -> None:
    """Run both in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = []
    with ray_session(RaySettings(num_cpus=given.actors + 2)), tempfile.TemporaryDirectory() as folder:
        for number in range(given.runs):
            for way in ("job", "ray_data"):
                encode = {"bundle": str(given.bundle), "table": f"{folder}/{way}{number}", "actors": given.actors}
                source = {"paths": [str(given.corpus)], "stored_fields": []}
                deployment = Deployment.model_validate({"source": source, "encode": encode | {"impact_step": 0.02}})
                rows.append(run(way, deployment, given.corpus))
    job, data = (median(float(row["docs_per_s"]) for row in rows if row["way"] == way) for way in ("job", "ray_data"))
    print_columns("runs", list(rows[0]), [list(row.values()) for row in rows])
    same = len({row["digest"] for row in rows}) == 1
    print_result({"actors": given.actors, "job": job, "ray_data": data, "ratio": data / job, "same_digest": same})
    sys.exit(data / job < GOAL)


if __name__ == "__main__":
    main()
