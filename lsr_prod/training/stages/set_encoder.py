"""Stage ``set_encoder``: change fields of the encoder card; the weights stay."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from lsr_prod.config.model import AdaptEncoderSettings
from lsr_prod.formats.card import EncoderCard
from lsr_prod.inference.terms.words import refuse_tokens
from lsr_prod.model import SparseEncoder
from lsr_prod.model.card_update import check_attention, check_casing, check_query_encoder, check_terms, check_uncased
from lsr_prod.model.token_weights import check_card_changes
from lsr_prod.training.stages.facts import ModelFacts, check_length


def check(
    stage: AdaptEncoderSettings,
    facts: ModelFacts,
    options: dict[str, str],  # noqa: ARG001 - all stages have the same signature
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage."""
    if facts.head == "token_weights":
        check_card_changes(stage.changes())
    attention = stage.attention or facts.attention
    first = stage.pooled_tokens or ("not_bos" if facts.kind == "causal" else "all")
    check_attention(EncoderCard(facts.architecture, 0, "", attention=attention, pooled_tokens=first))
    positions = facts.longest_input * (2 if facts.attention == "echo" else 1)
    after = replace(
        facts,
        attention=attention,
        longest_input=positions // 2 if attention == "echo" else positions,
        query_max_length=stage.query_max_length or facts.query_max_length,
        document_max_length=stage.document_max_length or facts.document_max_length,
        query_encoder=stage.query_encoder or facts.query_encoder,
        query_prompt=facts.query_prompt if stage.query_prompt is None else stage.query_prompt,
    )
    check_query_encoder(after.query_encoder, after.query_prompt)
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
            check_casing(stage.casing, letters)
        facts = replace(facts, casing=stage.casing)
    if stage.output_casing == "uncased":
        check_terms(facts.output_vocabulary)
        if letters is not None:
            check_uncased(letters)
    # The uncased terms are only known after the run.
    return facts if stage.output_casing is None else replace(facts, vocabulary_sha256=None)


def run(
    encoder: SparseEncoder,
    stage: AdaptEncoderSettings,
    *,
    options: dict[str, str],  # noqa: ARG001 - all stages have the same signature
    scratch: Path,  # noqa: ARG001
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Change the card.

    Returns:
        The new encoder, and the changed fields.
    """
    made = encoder.with_card(**stage.changes())
    return made, {**stage.changes(), "vocabulary_size": made.card.vocabulary_size}
