"""Train a model by a chain of stages, each from a model directory to a model directory.

    python jobs/train.py --config deployment.yaml [--train.workers 8 --train.use_gpu true]
    ray job submit --working-dir . -- python jobs/train.py --config deployment.yaml

Reads the sections ``train``, ``ray`` and ``storage``; ``jobs/recipes`` has whole ones. All settings are checked before
anything is written. A stage that is done is skipped, one that was changed runs again with those after it. Killed at any
moment, the same command goes on inside its stage. ``lsr-prod lineage MODEL`` says what a model was made
from. Ends with a row for each stage, a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad
configuration (nothing written).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.errors import MissingExtraError
from lsr_prod.jobs.run import run_job


def work(deployment: Deployment) -> Mapping[str, Any]:
    """Train; torch and transformers are loaded only now, so that a wrong setting is answered at once."""
    try:
        from transformers.utils.logging import disable_progress_bar

        from lsr_prod.training.chain import run_chain
        from lsr_prod.training.report import print_stages
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "train") from error
    disable_progress_bar()
    summary = run_chain(deployment)
    print_stages(summary["stage_rows"])
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(work, job="jobs/train.py", description=__doc__, needs=("train",), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
