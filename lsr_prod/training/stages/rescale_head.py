"""Stage ``rescale_head``: divide the output matrix by a constant, before training and before calibration."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from lsr_prod.config.vocabulary import RescaleHeadSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training_data.pins import pin_data
from lsr_prod.training_data.texts import sample_rows
from lsr_prod.vocabulary.head_scale import ALPHAS, choose_alpha, head_norms, probe_scale, scale_head


def check(stage: RescaleHeadSettings, facts: ModelFacts, options: dict[str, str]) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    if stage.alpha == "auto" and facts.query_encoder != "model":
        raise ConfigError(
            "alpha", "auto encodes sample queries, and this model does not encode queries", "rescale before set_encoder"
        )
    return ({} if stage.data is None else {"data": pin_data(stage.data, options)}), facts


def run(
    encoder: SparseEncoder,
    stage: RescaleHeadSettings,
    *,
    options: dict[str, str],
    scratch: Path,  # noqa: ARG001 - all stages have the same signature
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Divide the output matrix.

    Returns:
        The new encoder, and a flat summary; with ``auto``, ``probes`` has one mapping per constant.
    """
    made = encoder.clone()
    summary: dict[str, Any] = {}
    alpha = stage.alpha
    if isinstance(alpha, str):
        assert stage.data is not None
        rows = sample_rows(stage.data, options, stage.pairs)
        queries, positives = [row.query or "" for row in rows], [row.documents[0] for row in rows]
        probes = [probe_scale(made, queries, positives, one) for one in ALPHAS]
        alpha = choose_alpha(probes, max_score=stage.max_score, max_weight=stage.max_weight)
        summary["probes"] = [asdict(probe) for probe in probes]
    before = head_norms(made)
    scale_head(made, alpha)
    after = head_norms(made)
    return made, {"alpha": alpha, "mean_norm_before": before.mean_norm, "mean_norm": after.mean_norm, **summary}
