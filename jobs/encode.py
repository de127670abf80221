"""Encode a corpus into the sparse table, exactly once.

    python jobs/encode.py --config deployment.yaml [--encode.actors 8]
    ray job submit --working-dir . -- python jobs/encode.py --config deployment.yaml

Reads the sections ``source``, ``encode``, ``ray`` and ``storage``. The corpus (Parquet, JSONL, JSONL.gz, a BEIR folder
or a version of a Delta table) is cut into waves, and a wave enters the table as a whole. Killed at any moment, the same
command goes on where it stopped; finished, it does nothing. Bad rows go to the quarantine table with their reason.
Ends with a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration (nothing written).
"""

from collections.abc import Sequence

from lsr_prod.encoding import encode_corpus
from lsr_prod.jobs.run import run_job


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(
        lambda deployment: encode_corpus(deployment).to_json(),
        job="jobs/encode.py",
        description=__doc__,
        needs=("source", "encode"),
        argv=argv,
    )


if __name__ == "__main__":
    raise SystemExit(main())
