"""Stage ``expand_vocabulary``: make the most frequent words of a corpus the output terms."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lsr_prod.config.vocabulary import ExpandVocabularySettings
from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.words import word_pieces
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.training.data.schemas import pin_data
from lsr_prod.training.stages.facts import ModelFacts
from lsr_prod.training.vocabulary.initialization import Combination, Initialization, subtoken
from lsr_prod.training.vocabulary.transfer import replace_head
from lsr_prod.training.vocabulary.unigrams import count_words


def check(
    stage: ExpandVocabularySettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    if facts.output_vocabulary == "words":
        raise ConfigError(
            "stage", "the model's output terms are words already", "expand a model whose terms are tokens"
        )
    pins = {"data": pin_data(stage.data, options)}
    after = replace(
        facts,
        vocabulary_size=stage.size,
        vocabulary_sha256=None,
        output_vocabulary="words",
        tied=False,
        transferred=False,
    )
    return pins, after


def run(
    encoder: SparseEncoder,
    stage: ExpandVocabularySettings,
    *,
    options: dict[str, str],
    scratch: Path,  # noqa: ARG001 - all stages have the same signature
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Count the words and build a head for them. Needs a Ray session."""
    found = count_words(stage.data, encoder.tokenizer, size=stage.size, min_count=stage.min_count, options=options)
    words = [entry.word for entry in found]
    expanded, pieces = expand(encoder, words, drawn=stage.initialization == "random", seed=stage.seed)
    tokens = encoder.tokenizer.get_vocab()  # outside the loop: every call builds a new dictionary
    return expanded, {
        "vocabulary_size": len(words),
        "least_count": found[-1].count,
        "pieces_per_word": pieces,
        "words_of_one_piece": sum(word in tokens for word in words),
    }


def expand(encoder: SparseEncoder, words: list[str], *, drawn: bool, seed: int = 0) -> tuple[SparseEncoder, float]:
    """Return an encoder whose output terms are words; rows and biases are means over their sub-tokens (B.1).

    Returns:
        The new encoder, and sub-tokens per word.
    """
    pieces = word_pieces(words, encoder.tokenizer)
    empty = next((word for word, piece in zip(words, pieces, strict=True) if not piece), None)
    if empty is not None:
        raise ValueError(f"the tokenizer turns the word {empty!r} into no tokens")
    _, bias = output_layer(encoder.model)
    combination = Combination.of_lists([[]] * len(words), [[]] * len(words)) if drawn else subtoken(pieces)
    initialization = Initialization(combination, torch.empty(0, dtype=torch.int64), drawn=drawn, seed=seed)
    new_bias = None if bias is None else torch.zeros(len(words)) if drawn else initialization.values(bias)
    return replace_head(encoder, words, initialization, new_bias), sum(map(len, pieces)) / len(words)
