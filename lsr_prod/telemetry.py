"""Reports that dependencies send to their makers: off by default, in every process that imports ``lsr_prod``.

A variable that is set in the environment is respected, so each report can be turned on. Children inherit the
variables, and workers on other machines import ``lsr_prod`` before any of these packages. docs/security.md lists who
would be asked.
"""

import os
import sys
from collections.abc import MutableMapping

_ORT = "ORT_DISABLE_TELEMETRY"
_OFF = {
    _ORT: "1",  # ONNX Runtime reads it when it is imported
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # also of transformers, sentence-transformers, datasets and optimum
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
}


def turn_off(environment: MutableMapping[str, str] = os.environ) -> None:
    """Turn off every report that the environment does not turn on.

    ONNX Runtime that was imported before reports already, and cannot be stopped any more: a warning says so.
    """
    if "onnxruntime" in sys.modules and _ORT not in environment:
        import logging

        logging.getLogger(__name__).warning(
            "onnxruntime was imported before lsr_prod and sends telemetry; import lsr_prod first, or set %s=1 in the "
            "environment of the process",
            _ORT,
        )
    for name, value in _OFF.items():
        environment.setdefault(name, value)
