"""Mine hard negatives for training pairs with a published index.

    python jobs/mine.py --config deployment.yaml [--mine.negatives 15 --mine.margin_ratio 0.95]

Reads the section ``mine`` (and ``ray``, ``storage``). Every query is searched in the index, and of its hits those are
kept that are no positive of that query anywhere in the data, score below the margin (by the index, or by a teacher's
file), and repeat no text. Writes Parquet that ``jobs/train.py`` reads as ``kind: negatives``, and with ``mine.scores``
as ``kind: scores`` too: one part a slice of the pairs, ``_manifest.json`` last. Rows that are no pairs or get too few
negatives go to ``_quarantine`` in the same folder, with their reason. Run again after a kill, it goes on; after it was
done, it does nothing. Ends with a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad
configuration (nothing written).
"""

from collections.abc import Sequence

from lsr_prod.jobs.run import run_job
from lsr_prod.negatives.job import mine_negatives


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(mine_negatives, job="jobs/mine.py", description=__doc__, needs=("mine",), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
