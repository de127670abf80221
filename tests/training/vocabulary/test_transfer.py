from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.inference.terms.surfaces import Terms, align
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.output_layer import is_tied
from lsr_prod.storage.formats.bundle_format import longest_input
from lsr_prod.training.vocabulary.initialization import Initialization, copy_overlap
from lsr_prod.training.vocabulary.transfer import move_to_vocabulary, replace_head
from tests.model.tiny import ARCHITECTURES, CAUSAL, VOCABULARY, tiny_checkpoint

TEXTS = ["w1 W2 w3", "w5", "W0 w1 w7 w9 unheard W4"]
NAMES = {"<pad>": "[PAD]", "<unk>": "[UNK]", "<s>": "[CLS]", "</s>": "[SEP]", "<mask>": "[MASK]"}


def other_tokenizer(terms: list[str], *, lowercase: bool = False, padding: bool = True) -> PreTrainedTokenizerFast:
    """Tokenizer of a BERT with other names and ids of special tokens."""
    ids = {term: i for i, term in enumerate(terms)}
    backend = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase() if lowercase else None
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")]
    )
    roles = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    if padding:
        roles["pad_token"] = "[PAD]"
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


def shuffled() -> list[str]:
    terms = [NAMES.get(term, term) for term in VOCABULARY]
    np.random.default_rng(0).shuffle(terms)
    return terms


def overlap_only(encoder: SparseEncoder, tokenizer: PreTrainedTokenizerFast, terms: list[str]) -> Initialization:
    aligned = align(Terms.of(encoder.tokenizer, encoder.vocabulary), Terms.of(tokenizer, terms))
    return Initialization(copy_overlap(aligned), torch.from_numpy(aligned[aligned >= 0]))


def weights(encoder: SparseEncoder, texts: list[str]) -> list[dict[str, float]]:
    batch = encoder.encode(texts)
    bounds = batch.offsets
    return [
        {encoder.vocabulary[t]: float(w) for t, w in zip(batch.terms[a:b], batch.weights[a:b], strict=True)}
        for a, b in pairwise(bounds)
    ]


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "camembert", "xlm_roberta", *CAUSAL])
def test_same_tokens_in_another_order_give_same_vectors(tmp_path: Path, architecture: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", architecture))
    tokenizer = other_tokenizer(shuffled())
    if architecture in CAUSAL:  # texts of a decoder have no end token
        backend = tokenizer.backend_tokenizer
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A", special_tokens=[("[CLS]", tokenizer.cls_token_id)]
        )
    initialization = overlap_only(encoder, tokenizer, shuffled())
    _, bias = output_layer(encoder.model)
    new_bias = None if bias is None else initialization.values(bias)
    was_tied, before = is_tied(encoder.model), weights(encoder, TEXTS)
    move_to_vocabulary(encoder, tokenizer, initialization, new_bias).save(tmp_path / "moved")
    moved = SparseEncoder.load(tmp_path / "moved")
    known = {NAMES.get(term, term): term for term in VOCABULARY} if architecture not in CAUSAL else None
    for text, old in zip(weights(moved, TEXTS), before, strict=True):
        found = {(known or {}).get(term, term): weight for term, weight in text.items()}
        named = {term: weight for term, weight in old.items() if known or term not in NAMES}
        assert {term: found.get(term, 0.0) for term in named} == pytest.approx(named, abs=1e-5)
    assert is_tied(moved.model) == was_tied
    assert longest_input(moved.model.config.to_dict()) == longest_input(encoder.model.config.to_dict())
    assert moved.model.config.pad_token_id == tokenizer.pad_token_id == moved.tokenizer.pad_token_id
    assert moved.vocabulary == shuffled()
    assert weights(encoder, TEXTS) == [
        pytest.approx(one, abs=1e-5) for one in before
    ]  # the source encoder is not changed


@pytest.mark.parametrize("architecture", ["bert", "roberta", "llama", "gpt_neox"])
def test_smaller_vocabulary_with_new_tokens_and_given_bias(tmp_path: Path, architecture: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", architecture))
    terms = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "w1", "w3", "new"]
    tokenizer = other_tokenizer(terms, lowercase=True)
    initialization = overlap_only(encoder, tokenizer, terms)
    bias = torch.linspace(-1, 1, len(terms))
    moved = move_to_vocabulary(encoder, tokenizer, initialization, bias)
    moved.save(tmp_path / "moved")
    loaded = SparseEncoder.load(tmp_path / "moved")
    matrix, found = output_layer(loaded.model)
    old, _ = output_layer(encoder.model)
    torch.testing.assert_close(matrix[5], old[VOCABULARY.index("w1")])
    torch.testing.assert_close(matrix[7], old[initialization.center].mean(dim=0))
    torch.testing.assert_close(found, bias)
    assert loaded.card.casing == "lowercase"
    assert loaded.card.vocabulary_size == len(terms)
    for mixed, other in zip(weights(loaded, ["W1 w3", *TEXTS]), weights(moved, ["w1 W3", *TEXTS]), strict=True):
        assert mixed == pytest.approx(other, abs=1e-5)  # the last bit depends on memory alignment


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_replace_head_keeps_tokenizer_and_embeddings(tmp_path: Path, architecture: str):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", architecture))
    terms = ["w1", "w3", "W2"]
    aligned = align(Terms(encoder.vocabulary), Terms(terms))
    initialization = Initialization(copy_overlap(aligned), torch.from_numpy(aligned))
    _, bias = output_layer(encoder.model)
    headed = replace_head(encoder, terms, initialization, None if bias is None else initialization.values(bias))
    headed.save(tmp_path / "model")
    for text, old in zip(weights(SparseEncoder.load(tmp_path / "model"), TEXTS), weights(encoder, TEXTS), strict=True):
        assert text == pytest.approx({term: weight for term, weight in old.items() if term in terms}, abs=1e-5)
    assert not is_tied(headed.model)
    assert len(encoder.vocabulary) == 97


def test_tokenizer_without_padding_is_refused(tmp_path: Path):
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"))
    tokenizer = other_tokenizer(shuffled(), padding=False)
    with pytest.raises(ConfigError, match=r"target: its tokenizer has no padding token; name one"):
        move_to_vocabulary(encoder, tokenizer, overlap_only(encoder, tokenizer, shuffled()), None)
