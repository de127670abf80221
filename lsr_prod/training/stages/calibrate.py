"""Stage ``calibrate``: subtract a constant from the bias of the head. If the head is also rescaled, rescale first."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lsr_prod.config.vocabulary import CalibrateSettings
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log
from lsr_prod.model import SparseEncoder
from lsr_prod.training.data.rows import sample_rows
from lsr_prod.training.data.schemas import pin_data
from lsr_prod.training.stages.facts import ModelFacts, check_length
from lsr_prod.training.vocabulary.head import activation_rate, pooled_maxima, shift_bias, shift_for_rate

log = get_log(__name__)


def check(stage: CalibrateSettings, facts: ModelFacts, options: dict[str, str]) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    check_length("max_length", stage.max_length, facts)
    pins = {} if stage.data is None else {"data": pin_data(stage.data, options)}
    return pins, replace(facts, has_bias=True)


def run(
    encoder: SparseEncoder,
    stage: CalibrateSettings,
    *,
    options: dict[str, str],
    scratch: Path,  # noqa: ARG001 - all stages have the same signature
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Subtract the constant.

    Returns:
        The new encoder, and a flat summary: the constant; the activation rate on the texts that it was chosen on; the
        rate on held-out texts before and after.
    """
    calibrated = encoder.clone()
    if stage.activation_rate is None:
        assert stage.shift is not None
        shift_bias(calibrated, stage.shift)
        return calibrated, {"shift": stage.shift}
    assert stage.data is not None
    length = stage.max_length or encoder.card.document_max_length
    texts = [row.documents[0] for row in sample_rows(stage.data, options, stage.texts)]
    chosen_on, held_out = texts[::2], texts[1::2]
    before = activation_rate(calibrated, held_out, max_length=length) if held_out else None
    maxima = pooled_maxima(calibrated, chosen_on, stage.activation_rate, max_length=length)
    shift = _permitted(shift_for_rate(maxima, stage.activation_rate), stage, float((maxima > 0).mean()))
    shift_bias(calibrated, shift)
    summary: dict[str, Any] = {
        "shift": shift,
        "activation_rate": float((maxima > shift).mean()),
        "held_out_before": before,
        "held_out": activation_rate(calibrated, held_out, max_length=length) if held_out else None,
        "texts": len(chosen_on),
    }
    return calibrated, summary


def _permitted(shift: float, stage: CalibrateSettings, rate: float) -> float:
    """Return the constant, or 0 if it is negative and biases must not be raised."""
    if shift >= 0 or stage.negative_shift == "allow":
        return shift
    problem = (
        f"the model activates {rate:.4f} of the pairs, less than {stage.activation_rate}, so the constant would be "
        f"{shift:.3f} and raise every bias"
    )
    if stage.negative_shift == "refuse":
        remedy = "remove the stage, give a lower rate, or set negative_shift to zero or allow"
        raise ConfigError("activation_rate", problem, remedy)
    log.warning("%s; the biases are unchanged", problem)
    return 0.0
