"""Export a model as an ONNX bundle: the graph with pooling and top-k, the tokenizer and the encoder card.

    lsr-prod export --config deployment.yaml [--export.precision int8]

Reads the sections ``export`` and ``storage``. The bundle is compared with the torch model before it is sealed; if the
rankings differ, the job fails and leaves nothing behind. Lengths, prompts and casing belong to the model; set them
with ``lsr-prod model``.

Prints a table and one line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.run import Job, run_job

JOB = Job("export", __doc__, needs=("export",))


def main(argv: Sequence[str]) -> int:
    """Run the job; returns its exit code."""
    return run_job(JOB, _export, argv)


def _export(deployment: Deployment) -> Mapping[str, Any]:
    # Imported after the settings are validated: torch and transformers take seconds to load.
    from transformers.utils.logging import disable_progress_bar

    from lsr_prod.model.export import export_bundle

    assert deployment.export is not None
    disable_progress_bar()  # type: ignore[no-untyped-call]
    return export_bundle(deployment.export, deployment.storage.options)
