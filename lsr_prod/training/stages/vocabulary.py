"""Stages that change the vocabulary of a model.

- ``transfer_vocabulary``: another vocabulary, as tokens and outputs or as outputs only;
- ``expand_vocabulary``: the most frequent words of a corpus become the output terms.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from lsr_prod.config import model, section
from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import notation_of, overlap_share
from lsr_prod.inference.terms.words import fragmentation, lowercases, refuse_tokens, word_pieces
from lsr_prod.logs import get_log
from lsr_prod.model import SparseEncoder, backbone, layout_reader
from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data import schemas, training_rows
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE, ModelFacts
from lsr_prod.training.vocabulary import target, transfer
from lsr_prod.training.vocabulary.initialization import Combination, Initialization, initialize, subtoken
from lsr_prod.training.vocabulary.unigrams import count_words

log = get_log(__name__)

_TEXTS = 1000  # tokenized at once
_FRAGMENTED = 2000  # texts that fragmentation is measured on


def check_transfer(
    stage: model.TransferVocabularySettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    if facts.output_vocabulary == "words":
        problem = "the model's output terms are words, not its tokens"
        raise ConfigError("stage", problem, "put it before the stage that makes them words")
    pins: dict[str, str] = {}
    tokenizer = None
    if stage.target is not None:
        tokenizer = target.read_target(stage.target)
        if stage.parts == "all":
            transfer.check_tokenizer(tokenizer)
        pins["target"] = target.digest_target(stage.target)
    padding = 0 if tokenizer is None else tokenizer.pad_token_id  # 0 is the id in a tokenizer that is trained here
    if stage.parts == "all" and facts.architecture == "MPNetForMaskedLM" and padding != 1:
        problem = f"MPNet takes the token of id 1 for padding, but the padding token of the target has id {padding}"
        field = "train_tokenizer" if tokenizer is None else "target"
        raise ConfigError(field, problem, "give a target whose padding token has id 1, or set parts to head")
    if stage.train_tokenizer is not None:
        pins["train_tokenizer"] = schemas.pin_data(stage.train_tokenizer.data, options)
    if stage.unigrams is not None:
        pins["unigrams"] = schemas.pin_data(stage.unigrams, options)
    if stage.initialization == "semantic" or stage.bias == "target":
        pins["target_embeddings"] = _check_target_model(stage, tokenizer)
    _check_bias(stage, facts)
    return pins, _facts_after(stage, facts, tokenizer)


def transfer_vocabulary(
    encoder: SparseEncoder, stage: model.TransferVocabularySettings, options: dict[str, str], scratch: Path
) -> tuple[SparseEncoder, dict[str, Any]]:
    """Give the encoder the new vocabulary."""
    encoder = encoder.with_card(output_casing="all")  # one term per row of the head
    tokenizer = _target_tokenizer(stage, options)
    terms = target.target_terms(tokenizer)
    known = None
    if stage.initialization == "semantic" or stage.bias == "target":
        known = target.read_embeddings(_embeddings_of(stage), terms, bias=stage.bias == "target")
    aligned, initialization = initialize(encoder, tokenizer, stage.initialization, known, seed=stage.seed)
    bias = _bias(encoder, stage, tokenizer, initialization, known, options)
    summary: dict[str, Any] = {
        "vocabulary_size": len(terms),
        "old_vocabulary_size": encoder.card.vocabulary_size,
        "overlap": overlap_share(aligned),
    }
    if (data := _corpus(stage)) is not None:
        texts = [row.documents[0] for row in islice(training_rows.read_good_rows(data, options), _FRAGMENTED)]
        summary["fragmentation"] = fragmentation(texts, tokenizer)
        summary["old_fragmentation"] = fragmentation(texts, encoder.tokenizer)
    if stage.parts == "head":
        return transfer.replace_head(encoder, terms, initialization, bias), summary
    new = {"new": np.flatnonzero(aligned < 0).tolist()}
    write_file(scratch / TRANSFER_FILE, f"{json.dumps(new)}\n".encode())
    return transfer.move_to_vocabulary(encoder, tokenizer, initialization, bias), summary


def _check_target_model(stage: model.TransferVocabularySettings, tokenizer: PreTrainedTokenizerFast | None) -> str:
    folder = stage.target_embeddings or stage.target
    reason = "initialization semantic" if stage.initialization == "semantic" else "bias target"
    has_weights = folder is not None and (layout_reader.parts_folder(Path(folder)) / "model.safetensors").is_file()
    if folder is None or (stage.target_embeddings is None and not has_weights):
        problem = f"{reason} needs a model with the target's tokens, and {folder} has no weights"
        remedy = "name such a model, or take initialization subtoken and bias unigrams, rows or none"
        raise ConfigError("target_embeddings", problem, remedy)
    target.check_embeddings(folder)
    assert tokenizer is not None
    missing = set(tokenizer.get_vocab()) - set(target.read_target(folder).get_vocab())
    if missing:
        problem = f"{folder} lacks {len(missing)} of the target's tokens, {min(missing)!r} among them"
        raise ConfigError("target_embeddings", problem, "name a model that was trained with the target's tokenizer")
    return target.digest_embeddings(folder)


def _check_bias(stage: model.TransferVocabularySettings, facts: ModelFacts) -> None:
    if stage.bias in ("target", "rows") and not facts.has_bias:
        problem = f"the head of {facts.architecture} has no bias"
        raise ConfigError("bias", problem, "take none, or unigrams to create a bias")
    if stage.bias == "none" and facts.has_bias:
        raise ConfigError("bias", f"the head of {facts.architecture} has a bias", "take target, unigrams or rows")
    if stage.bias == "target" and not target.has_bias(folder := _embeddings_of(stage)):
        raise ConfigError("bias", f"{folder} has no head with a bias", "take unigrams or rows")


def _embeddings_of(stage: model.TransferVocabularySettings) -> str:
    folder = stage.target_embeddings or stage.target
    assert folder is not None
    return folder


def _facts_after(
    stage: model.TransferVocabularySettings, facts: ModelFacts, tokenizer: PreTrainedTokenizerFast | None
) -> ModelFacts:
    trained = stage.train_tokenizer
    size = len(tokenizer) if tokenizer is not None else trained.size if trained is not None else 0
    sha256 = None if tokenizer is None else digest_json(target.target_terms(tokenizer))
    after = replace(facts, vocabulary_size=size, vocabulary_sha256=sha256, has_bias=stage.bias != "none")
    if stage.parts == "head":
        words = tokenizer is not None and notation_of(target.target_terms(tokenizer)) == "words"
        if facts.query_encoder != "model" and not words:
            refuse_tokens("parts")
        return replace(after, tied=False, output_vocabulary="words", transferred=False, token_head=not words)
    roles = {"unk", "cls", "sep", "pad", "mask"}
    special, lowercase = 2, True
    if tokenizer is not None:
        roles = {role for role in (*roles, "bos", "eos") if getattr(tokenizer, f"{role}_token", None) is not None}
        special, lowercase = tokenizer.num_special_tokens_to_add(), lowercases(tokenizer.backend_tokenizer)
    casing: Literal["none", "lowercase"] = "lowercase" if lowercase else "none"
    shortest = special + facts.appended_tokens + 1
    return replace(after, casing=casing, roles=frozenset(roles), shortest_input=shortest, transferred=True)


def _target_tokenizer(stage: model.TransferVocabularySettings, options: dict[str, str]) -> PreTrainedTokenizerFast:
    if stage.target is not None:
        return target.read_target(stage.target)
    trained = stage.train_tokenizer
    assert isinstance(trained, model.DomainTokenizerSettings)
    texts = _texts(trained.data, options)
    tokenizer = target.train_tokenizer(texts, model=trained.model, size=trained.size, min_count=trained.min_count)
    log.info("tokenizer trained", extra={"fields": {"size": len(tokenizer), "requested": trained.size}})
    return tokenizer


def _bias(
    encoder: SparseEncoder,
    stage: model.TransferVocabularySettings,
    tokenizer: PreTrainedTokenizerFast,
    initialization: Initialization,
    known: target.TargetModel | None,
    options: dict[str, str],
) -> torch.Tensor | None:
    _, source = backbone.output_layer(encoder.model)
    match stage.bias:
        case "none":
            return None
        case "rows":
            assert source is not None
            return initialization.values(source)
        case "target":
            assert source is not None
            assert known is not None
            assert known.bias is not None
            return transfer.transfer_bias(source, known.bias)
    data = _corpus(stage)
    assert data is not None
    texts = islice(_texts(data, options), stage.unigram_texts)
    created = transfer.unigram_bias(_count_tokens(texts, tokenizer).tolist())
    return created if source is None else transfer.transfer_bias(source, created)


def _corpus(stage: model.TransferVocabularySettings) -> section.TrainingDataSettings | None:
    if stage.unigrams is not None:
        return stage.unigrams
    return None if stage.train_tokenizer is None else stage.train_tokenizer.data


def _texts(data: section.TrainingDataSettings, options: dict[str, str]) -> Iterator[str]:
    return (row.documents[0] for row in training_rows.read_good_rows(data, options))


def _count_tokens(texts: Iterator[str], tokenizer: PreTrainedTokenizerFast) -> NDArray[np.int64]:
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    while some := list(islice(texts, _TEXTS)):
        ids = [i for row in tokenizer(some, add_special_tokens=False)["input_ids"] for i in row]
        counts += np.bincount(ids, minlength=len(counts))
    return counts


def check_expand(
    stage: model.ExpandVocabularySettings, facts: ModelFacts, options: dict[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the stage; nothing is written."""
    if facts.output_vocabulary == "words":
        problem = "the model's output terms are words already"
        raise ConfigError("stage", problem, "expand a model whose terms are tokens")
    after = replace(facts, vocabulary_size=stage.size, vocabulary_sha256=None, output_vocabulary="words")
    return {"data": schemas.pin_data(stage.data, options)}, replace(after, tied=False, transferred=False)


def expand_vocabulary(
    encoder: SparseEncoder, stage: model.ExpandVocabularySettings, options: dict[str, str], *_: Any
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
    """Return an encoder whose output terms are words, and sub-tokens per word.

    Rows and biases are means over the sub-tokens of a word (B.1).
    """
    pieces = word_pieces(words, encoder.tokenizer)
    empty = next((word for word, piece in zip(words, pieces, strict=True) if not piece), None)
    if empty is not None:
        raise ValueError(f"the tokenizer turns the word {empty!r} into no tokens")
    _, bias = backbone.output_layer(encoder.model)
    combination = Combination.of_lists([[]] * len(words), [[]] * len(words)) if drawn else subtoken(pieces)
    initialization = Initialization(combination, torch.empty(0, dtype=torch.int64), drawn=drawn, seed=seed)
    new_bias = None if bias is None else torch.zeros(len(words)) if drawn else initialization.values(bias)
    return transfer.replace_head(encoder, words, initialization, new_bias), sum(map(len, pieces)) / len(words)
