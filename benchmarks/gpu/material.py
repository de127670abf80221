"""The model and the texts of the GPU kit."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from lsr_prod import SparseEncoder
from lsr_prod.model.export.parity import read_parity_texts
from lsr_prod.training.vocabulary.head import pooled_maxima, shift_bias, shift_for_rate

TOY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
ACTIVE = 0.0075  # share of the terms that a document has
LENGTH = 256  # tokens of a document, at most
_CALIBRATION = 16  # texts


def read_texts(path: Path | None) -> list[str]:
    """The texts of a JSONL file, maybe of gzip; without one, the sentences that the parity check has."""
    if path is None:
        return [text for text in read_parity_texts(None) if text.strip()]
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [text for line in data.splitlines() if (text := json.loads(line)["text"]).strip()]


def more_texts(texts: Sequence[str], number: int) -> list[str]:
    """``number`` different texts of the same lengths: later rounds begin at another word of a text."""
    found: list[str] = []
    for round_ in range(-(-number // len(texts))):
        for text in texts[: number - len(found)]:
            words = text.split()
            at = round_ % max(len(words), 1)
            found.append(" ".join([*words[at:], *words[:at], f"w{round_}"]) if round_ else text)
    return found


def make_model(folder: Path, tokenizer: Path, texts: Sequence[str], *, toy: bool) -> SparseEncoder:
    """A BERT-base (toy: a tiny one) of random weights, whose bias leaves ``ACTIVE`` of the terms of a text."""
    torch.manual_seed(0)
    read = AutoTokenizer.from_pretrained(tokenizer)
    model = BertForMaskedLM(BertConfig(vocab_size=len(read), **(TOY if toy else {})))
    model.save_pretrained(folder / "plain")
    read.save_pretrained(folder / "plain")
    encoder = SparseEncoder.load(folder / "plain", document_max_length=LENGTH, query_max_length=LENGTH)
    some = list(texts[:_CALIBRATION])
    shift_bias(encoder, shift_for_rate(pooled_maxima(encoder, some, ACTIVE, max_length=LENGTH), ACTIVE))
    encoder.save(folder / "model")
    return encoder
