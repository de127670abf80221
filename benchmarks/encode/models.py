"""The two models of the encoding benchmark, as model directories that sentence-transformers opens too.

``splade-tiny`` is a trained SPLADE and judges quality. The 6x384 encoder is the size that people run on a CPU and
judges speed; it has no vocabulary head of its own, so it gets one: a fresh transform over its tied embeddings, and
biases set so that every term is active in as many of the texts as with splade-tiny. Sparsity and never-active terms
are then those of a trained model, whatever the terms mean.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertForMaskedLM

from lsr_prod import SparseEncoder
from quickstart.models import model_folder

MAX_LENGTH = {"splade-tiny": 128, "6x384": 256}
_MARGIN = 0.5  # how far below zero the largest logit of a term stays that no text activates


def make_tiny(folder: Path) -> Path:
    """splade-tiny, documents cut at 128 tokens."""
    SparseEncoder.load(
        model_folder("splade-tiny"),
        document_max_length=MAX_LENGTH["splade-tiny"],
        query_max_length=MAX_LENGTH["splade-tiny"],  # version 5 of sentence-transformers has one length
    ).save(folder)
    return folder


def make_six_layers(folder: Path, tiny: Path, texts: Sequence[str]) -> Path:
    """The 6x384 encoder with a head whose activity on ``texts`` is splade-tiny's."""
    source = model_folder("minilm")
    torch.manual_seed(0)
    model = BertForMaskedLM.from_pretrained(source).eval()
    predictions = model.cls.predictions
    with torch.no_grad():
        predictions.bias.zero_()
        predictions.transform.dense.bias.zero_()
    plain = folder.with_name(folder.name + "-plain")
    model.save_pretrained(plain)
    AutoTokenizer.from_pretrained(source).save_pretrained(plain)
    encoder = SparseEncoder.load(plain, document_max_length=MAX_LENGTH["6x384"], query_max_length=MAX_LENGTH["6x384"])
    size = encoder.card.vocabulary_size
    rates = document_rates(SparseEncoder.load(tiny), texts, size)  # [V]
    maxima = _largest_logits(encoder, texts, size)  # [n, V]
    maxima.sort(axis=0)
    active = np.round(rates * len(texts)).astype(np.int64)  # of n texts
    at = np.clip(len(texts) - active, 0, len(texts) - 1)
    threshold = maxima[at, np.arange(size)] - 1e-3
    threshold[active == 0] = maxima[-1, active == 0] + _MARGIN
    with torch.no_grad():
        encoder.model.cls.predictions.bias.copy_(torch.from_numpy(-threshold))
    encoder.save(folder)
    return folder


def document_rates(encoder: SparseEncoder, texts: Sequence[str], size: int) -> np.ndarray:
    """Share of ``texts`` in which each of ``size`` terms is active."""
    batch = encoder.encode(texts, batch_size=8)
    return np.bincount(batch.terms, minlength=size) / len(texts)


@torch.inference_mode()
def _largest_logits(encoder: SparseEncoder, texts: Sequence[str], size: int) -> np.ndarray:
    tokenizer = encoder.tokenizer
    rows = np.empty((len(texts), size), np.float32)
    for i, text in enumerate(texts):
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=MAX_LENGTH["6x384"])
        logits = encoder.model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        rows[i] = logits[0].amax(dim=0).numpy()
    return rows
