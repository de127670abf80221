"""Export a model as an ONNX bundle: the graph with pooling and top-k inside, the tokenizer and the encoder card.

    python jobs/export.py --config deployment.yaml [--export.precision int8]

Reads the section ``export``. The bundle is compared with the torch model before it gets its name; the job fails and
leaves nothing behind if the rankings differ. Lengths, prompts and casing belong to the model: set them with
``python -m lsr_prod.model``. Ends with a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad
configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.errors import MissingExtraError
from lsr_prod.jobs.run import run_job


def work(deployment: Deployment) -> Mapping[str, Any]:
    """Export; torch and transformers are loaded only now, so that a wrong setting is answered at once."""
    assert deployment.export is not None
    try:
        from transformers.utils.logging import disable_progress_bar

        from lsr_prod.export import export_bundle
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", "train") from error
    disable_progress_bar()
    return export_bundle(deployment.export)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns its exit code."""
    return run_job(work, job="jobs/export.py", description=__doc__, needs=("export",), argv=argv)


if __name__ == "__main__":
    raise SystemExit(main())
