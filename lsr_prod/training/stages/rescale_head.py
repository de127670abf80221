"""Stage ``rescale_head``: the output matrix is divided by a constant, before training and before calibration."""

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

__all__ = ["check", "run"]


def check(stage: RescaleHeadSettings, facts: ModelFacts, options: dict[str, str]) -> tuple[dict[str, str], ModelFacts]:
    """What the stage reads, name -> digest, and what the model is afterwards; nothing is written.

    Raises:
        ConfigError: the sample pairs are not there, or queries have no model that could be probed.
    """
    if stage.alpha == "auto" and facts.query_encoder == "idf":
        raise ConfigError("alpha", "auto probes queries, and these have no model", "rescale before set_encoder")
    return ({} if stage.data is None else {"data": pin_data(stage.data, options)}), facts


def run(
    encoder: SparseEncoder,
    stage: RescaleHeadSettings,
    *,
    options: dict[str, str],
    scratch: Path,  # noqa: ARG001 - stages are run alike
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Rescale.

    Args:
        encoder: the model; it is left as it is.
        stage: the settings, checked.
        options: options of the object store.
        scratch: not used.

    Returns:
        The new encoder, and a flat summary; with ``auto``, ``probes`` holds a mapping for each constant.
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
