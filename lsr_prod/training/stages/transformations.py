"""Stages that change an encoder in one go, without a training loop.

- ``calibrate``: subtract a constant, or one per term, from the bias of the head; rescale first, if at all;
- ``rescale_head``: divide the output matrix;
- ``set_encoder``: change fields of the encoder card; the weights stay.

Each is called with the encoder, its settings, the options of the object store and an empty folder.
"""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from lsr_prod import errors, logs
from lsr_prod.config.model import AdaptEncoderSettings, CalibrateSettings, RescaleHeadSettings
from lsr_prod.inference.terms.words import refuse_tokens
from lsr_prod.model import SparseEncoder, card_update
from lsr_prod.storage.formats.bundle_format import EncoderCard, PooledTokens
from lsr_prod.training.data import schemas, training_rows
from lsr_prod.training.stages.stage_facts import ModelFacts, check_length
from lsr_prod.training.vocabulary import head

log = logs.get_log(__name__)

_ALL = 1 - 1e-6  # share of the maxima that a constant per term has to know


def check_calibrate(
    stage: CalibrateSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    check_length("max_length", stage.max_length, facts)
    pins = {} if stage.data is None else {"data": schemas.pin_data(stage.data, options)}
    return pins, replace(facts, has_bias=True)


def calibrate(
    encoder: SparseEncoder, stage: CalibrateSettings, options: dict[str, str], *_: Any
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Subtract the constant; return the new encoder, and a summary with rates on the texts and held-out texts.

    A constant per term is that of a row of the head; uncased outputs fold some rows, and are active more often.
    """
    calibrated = encoder.clone()
    if stage.activation_rate is None:
        assert stage.shift is not None
        head.shift_bias(calibrated, stage.shift)
        return calibrated, {"shift": stage.shift}
    assert stage.data is not None
    length = stage.max_length or encoder.card.document_max_length
    texts = [row.documents[0] for row in training_rows.sample_rows(stage.data, options, stage.texts)]
    chosen_on, held_out = texts[::2], texts[1::2]
    before = head.activation_rate(calibrated, held_out, max_length=length) if held_out else None
    if stage.per == "term":
        folded = calibrated.card.output_casing == "uncased"
        rows = calibrated.with_card(output_casing="all") if folded else calibrated  # one term per row of the head
        maxima = head.pooled_maxima(rows, chosen_on, _ALL, max_length=length)
        shift: np.ndarray[Any, np.dtype[np.float32]] = head.shifts_for_rate(maxima, stage.activation_rate)
    else:
        maxima = head.pooled_maxima(calibrated, chosen_on, stage.activation_rate, max_length=length)
        constant = head.shift_for_rate(maxima, stage.activation_rate)
        shift = np.array(_permitted(constant, stage, float((maxima > 0).mean())), np.float32)
    head.shift_bias(calibrated, torch.from_numpy(np.asarray(shift)))
    summary: dict[str, Any] = {
        "shift": float(np.mean(shift)),
        "activation_rate": float((maxima > shift).mean()),
        "held_out_before": before,
        "held_out": head.activation_rate(calibrated, held_out, max_length=length) if held_out else None,
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
        raise errors.ConfigError("activation_rate", problem, remedy)
    log.warning("%s; the biases are unchanged", problem)
    return 0.0


def check_rescale_head(
    stage: RescaleHeadSettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    if stage.alpha == "auto" and facts.query_encoder != "model":
        problem = "auto encodes sample queries, and this model does not encode queries"
        raise errors.ConfigError("alpha", problem, "rescale before set_encoder")
    return ({} if stage.data is None else {"data": schemas.pin_data(stage.data, options)}), facts


def rescale_head(
    encoder: SparseEncoder, stage: RescaleHeadSettings, options: dict[str, str], *_: Any
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Divide the output matrix; return the new encoder, and a flat summary, with ``auto`` also the probes."""
    made = encoder.clone()
    summary: dict[str, Any] = {}
    alpha = stage.alpha
    if isinstance(alpha, str):
        assert stage.data is not None
        rows = training_rows.sample_rows(stage.data, options, stage.pairs)
        queries, positives = [row.query or "" for row in rows], [row.documents[0] for row in rows]
        probes = [head.probe_scale(made, queries, positives, one) for one in head.ALPHAS]
        alpha = head.choose_alpha(probes, max_score=stage.max_score, max_weight=stage.max_weight)
        summary["probes"] = [asdict(probe) for probe in probes]
    before = head.head_norms(made)
    head.scale_head(made, alpha)
    after = head.head_norms(made)
    return made, {"alpha": alpha, "mean_norm_before": before.mean_norm, "mean_norm": after.mean_norm, **summary}


def check_set_encoder(stage: AdaptEncoderSettings, facts: ModelFacts, *_: Any) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage."""
    card_update.check_head(facts.head, stage.changes())
    attention = stage.attention or facts.attention
    appended = stage.appended_tokens or facts.appended_tokens
    usual: PooledTokens = "not_bos" if facts.kind == "causal" else "all"
    card = EncoderCard(
        facts.architecture,
        0,
        "",
        attention=attention,
        pooled_tokens=stage.pooled_tokens or ("appended" if facts.appended_tokens else usual),
        appended_tokens=appended,
        pooled_states=stage.pooled_states or facts.pooled_states,
    )
    card_update.check_attention(card)
    card_update.check_appended(facts.appended_tokens, appended)
    positions = facts.longest_input * (2 if facts.attention == "echo" else 1)
    after = replace(
        facts,
        attention=attention,
        pooled_states=card.pooled_states,
        appended_tokens=appended,
        shortest_input=facts.shortest_input + appended - facts.appended_tokens,
        longest_input=positions // 2 if attention == "echo" else positions,
        query_max_length=stage.query_max_length or facts.query_max_length,
        document_max_length=stage.document_max_length or facts.document_max_length,
        query_encoder=stage.query_encoder or facts.query_encoder,
        query_prompt=facts.query_prompt if stage.query_prompt is None else stage.query_prompt,
    )
    card_update.check_query_encoder(after.query_encoder, after.query_prompt)
    if after.query_encoder != "model" and facts.token_head:
        refuse_tokens("query_encoder")
    for name in ("query_max_length", "document_max_length"):
        check_length(name, getattr(after, name), after)
    return {}, _check_casings(stage, after)


def _check_casings(stage: AdaptEncoderSettings, facts: ModelFacts) -> ModelFacts:
    """Check the casing. A vocabulary that an earlier stage creates is unknown here; ``run`` checks it."""
    known = facts.letters is not None and facts.letters[0] == facts.vocabulary_sha256
    letters = facts.letters[1] if known and facts.letters is not None else None
    if stage.casing is not None and facts.casing != stage.casing:
        if letters is not None and facts.output_vocabulary == "tokenizer":
            card_update.check_casing(stage.casing, letters)
        facts = replace(facts, casing=stage.casing)
    if stage.output_casing == "uncased":
        card_update.check_terms(facts.output_vocabulary)
        if letters is not None:
            card_update.check_uncased(letters)
    # The uncased terms are only known after the run.
    return facts if stage.output_casing is None else replace(facts, vocabulary_sha256=None)


def set_encoder(encoder: SparseEncoder, stage: AdaptEncoderSettings, *_: Any) -> tuple[SparseEncoder, dict[str, Any]]:
    """Change the card; return the new encoder, and the changed fields."""
    made = encoder.with_card(**stage.changes())
    return made, {**stage.changes(), "vocabulary_size": made.card.vocabulary_size}
