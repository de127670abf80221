"""Models that stand in for the pre-trained ones of the papers: a cased BERT, an uncased BERT, and a Llama.

    python -m benchmarks.stand_ins SHARED_DATA [NAME ...] [--work FOLDER] [--quick]

No pre-trained masked language model is available without a download, so these are trained once, on the text of the
collections at hand (wikitext2, pages of tldr, abstracts of SciFact, descriptions of Debian packages), and kept outside
the repository under a digest of their settings and texts. ``curve.jsonl`` in the folder of a model has its losses.

The BERTs have the embeddings and the first three layers of all-MiniLM-L6-v2 (384 wide), which has no head for masked
language modeling; the head is new, and all weights are trained. The cased one is moved onto the vocabulary of
bert-base-cased first, so an upper-case form starts as the mean of the rows of its lower-case pieces. The Llama
(4 x 256, 8,000 byte pairs) starts from random weights. An interrupted training resumes from its last 100 steps.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from benchmarks.train.pruning_data import page_texts, read_lines
from benchmarks.train.recipes_data import word_piece_tokenizer
from lsr_prod import SparseEncoder
from lsr_prod.config.language import AdaptCausalSettings, AdaptMlmSettings, LanguageSettings
from lsr_prod.config.model import TransferVocabularySettings
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data.layouts import PackedLayout, pack
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.language.trainer import LanguageTrainer, make_objective
from lsr_prod.training.process_group import Group
from lsr_prod.training.stages.vocabulary import transfer_vocabulary as transfer
from lsr_prod.training.vocabulary.head import pooled_maxima, shift_bias, shift_for_rate
from quickstart.models import model_folder

ALONE = Group(0, 1, torch.device("cpu"))
NOTHING = np.empty(0, np.int32)
LENGTH = 64  # tokens of a text
WORDS = 44  # of a piece of a text
BLOCK = 128  # tokens of a block of the Llama
ACTIVE = 0.02  # share of (text, term) above 0 after the training
SAVE_EVERY = 100
_FORMAT = 2  # raise it when the same settings make another model


@dataclass(frozen=True, slots=True)
class StandIn:
    """One model and how it is trained.

    Attributes:
        settings: of the language modeling.
        start: makes the untrained model from the folder of collections.
    """

    settings: LanguageSettings
    start: Callable[[Path], SparseEncoder]


def main(argv: Sequence[str]) -> int:
    """Train what is missing and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with wikitext2/, tldr_en/, scifact/, debian_packages/ …")
    parser.add_argument("names", nargs="*", choices=[[], *stand_ins()], default=[], help="default: all")
    parser.add_argument("--work", type=Path, default=None, help="default: a per-user cache")
    parser.add_argument("--quick", action="store_true", help="three steps each: does it work at all?")
    asked = parser.parse_args(argv)
    found = {}
    for name in asked.names or stand_ins():
        folder = stand_in(name, asked.data, work=asked.work, steps=3 if asked.quick else None)
        last = json.loads((folder / "curve.jsonl").read_text().splitlines()[-1])
        found[name] = {"folder": folder.name, "step": last["step"], "loss": last["loss"]}
    print_result(found)
    return 0


def cache() -> Path:
    """The folder of finished models, ``$LSR_PROD_STAND_INS`` or a per-user cache."""
    return Path(os.environ.get("LSR_PROD_STAND_INS") or Path.home() / ".cache" / "lsr_prod" / "stand_ins")


def stand_in(name: str, data: Path, *, work: Path | None = None, steps: int | None = None) -> Path:
    """The folder of a trained model; trains it on first use.

    Args:
        name: of ``stand_ins()``.
        data: folder of the collections.
        work: folder of models; None: ``cache()``.
        steps: instead of the settings'.
    """
    one = stand_ins()[name]
    settings = one.settings if steps is None else one.settings.model_copy(update={"steps": steps})
    texts = list(pieces(data))
    key = [
        _FORMAT,
        name,
        settings.model_dump(mode="json", exclude={"data": True, "watch": True, "scale": {"attention"}}),
        ACTIVE,
        digest_json(texts),
    ]
    folder = (work or cache()) / f"{name}-{digest_json(key)[:12]}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.draft")
        draft.mkdir(parents=True, exist_ok=True)
        _train(one.start(data), settings, texts, draft)
        draft.rename(folder)
    return folder


def stand_ins() -> dict[str, StandIn]:
    """The models by name."""
    masked = {
        "stage": "adapt_mlm", "trained": "all", "mask_rate": 0.2, "new_token_weight": 1, "max_length": LENGTH,
        "batch": {"texts": 64}, "steps": 5000,
        "optimizer": {"learning_rate": 5e-4, "schedule": "cosine", "warmup_share": 0.06},
    }  # fmt: skip
    causal = {
        "stage": "adapt_causal", "relu_weight": 0, "max_length": BLOCK, "batch": {"texts": 32}, "steps": 1200,
        "optimizer": {"learning_rate": 2e-3, "schedule": "cosine", "warmup_share": 0.06},
    }  # fmt: skip
    shared = {"data": {"paths": ["none"], "kind": "texts"}, "scale": {"precision": "bf16"}, "dropout": 0.0}
    return {
        "uncased": StandIn(AdaptMlmSettings.model_validate(masked | shared), lambda _: _masked_minilm()),
        "cased": StandIn(AdaptMlmSettings.model_validate(masked | shared), _cased_minilm),
        "decoder": StandIn(AdaptCausalSettings.model_validate(causal | shared), _small_llama),
    }


def wikitext(folder: Path) -> list[str]:
    """Paragraphs, headings left out."""
    lines = (folder / "wiki.train.tokens").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if len(line) > 80 and not line.startswith(" =")]


def pieces(data: Path) -> Iterator[str]:
    """The texts, without held-out queries of tldr, cut into pieces of some words, in an order that a seed draws."""
    texts = [line.replace(" @-@ ", "-").replace("<unk>", "") for line in wikitext(data / "wikitext2")]
    texts += page_texts(data / "tldr_en")
    for name, limit in (("scifact", None), ("debian_packages", 15_000)):
        rows = read_lines(data / name / "corpus.jsonl")[:limit]
        texts += [f"{row.get('title', '')} {row['text']}".strip() for row in rows]
    random.Random(0).shuffle(texts)
    for text in texts:
        words = text.split()
        for start in range(0, len(words), WORDS):
            yield " ".join(words[start : start + WORDS])


def _train(encoder: SparseEncoder, settings: LanguageSettings, texts: list[str], folder: Path) -> None:
    """Language modeling of the texts; saves the model, its losses, and every some steps what resuming needs."""
    trainer = LanguageTrainer(
        encoder, _rows(encoder, settings, texts), settings, ALONE, make_objective(settings, encoder, new_tokens=())
    )  # type: ignore[arg-type]
    state, curve = folder / "resume.safetensors", folder / "curve.jsonl"
    if state.exists():
        _resume(trainer, state)
    start, losses = time.perf_counter(), []
    while trainer.step < trainer.steps:
        losses.append(trainer.train_step().losses["total"])
        if trainer.step % SAVE_EVERY == 0 or trainer.step == trainer.steps:
            row = {
                "step": trainer.step,
                "loss": round(float(np.mean(losses)), 4),
                "seconds": round(time.perf_counter() - start),
            }
            with curve.open("a") as file:
                file.write(json.dumps(row) + "\n")
            sys.stderr.write(f"{folder.name}: {row}\n")
            losses = []
            _save(trainer, state)
    if isinstance(settings, AdaptMlmSettings):
        shifted(encoder, texts)
    _save_model(encoder, folder, state)


def shifted(encoder: SparseEncoder, texts: Sequence[str]) -> SparseEncoder:
    """The encoder with a bias that leaves ``ACTIVE`` of the logits of texts above 0, as in a pre-trained BERT.

    Cross entropy determines a bias up to a constant, which large corpora bring below 0 and short trainings do not.
    """
    sample = texts[:: len(texts) // 128 + 1]
    maxima = pooled_maxima(encoder.eval(), sample, ACTIVE, max_length=LENGTH)
    shift_bias(encoder, shift_for_rate(maxima, ACTIVE))
    return encoder


def _save_model(encoder: SparseEncoder, folder: Path, state: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        encoder.save(Path(scratch) / "model")
        for file in (Path(scratch) / "model").iterdir():
            file.rename(folder / file.name)
    state.unlink()


def _save(trainer: LanguageTrainer, state: Path) -> None:
    parts = trainer.tensors(keep=True)
    flat = {
        f"{part}/{name}": value.contiguous().clone()
        for part, tensors in parts.items()
        for name, value in tensors.items()
    }
    save_file(flat | {"step": torch.tensor(trainer.step)}, state.with_suffix(".draft"))
    state.with_suffix(".draft").rename(state)


def _resume(trainer: LanguageTrainer, state: Path) -> None:
    flat = load_file(state)
    step = int(flat.pop("step"))
    parts: dict[str, dict[str, torch.Tensor]] = {}
    for name, value in flat.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    trainer.load(step, parts)


def _rows(encoder: SparseEncoder, settings: LanguageSettings, texts: list[str]) -> SampleRows:
    if isinstance(settings, AdaptCausalSettings):
        ids = [np.array(one, np.int32) for one in encoder.tokenizer(texts)["input_ids"]]
        layout = PackedLayout(BLOCK, int(encoder.tokenizer.eos_token_id))
        return SampleRows([Example(NOTHING, (block,), None) for block in pack(ids, layout)])
    rows = encoder.tokenizer(texts, truncation=True, max_length=LENGTH)["input_ids"]
    return SampleRows([Example(NOTHING, (np.array(row, np.int32),), None) for row in rows if len(row) > 4])


def _masked_minilm() -> SparseEncoder:
    """The first three layers of MiniLM with a new head, whose transform starts as the identity."""
    source = model_folder("minilm")
    whole = BertModel.from_pretrained(source)
    config = BertConfig.from_pretrained(source)
    config.update({"num_hidden_layers": 3, "tie_word_embeddings": True})
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    missing, unexpected = model.bert.load_state_dict(whole.state_dict(), strict=False)
    assert not missing, missing
    assert all(name.startswith(("encoder.layer.", "pooler.")) for name in unexpected)
    with torch.no_grad():
        model.cls.predictions.transform.dense.weight.copy_(torch.eye(config.hidden_size))
    return _loaded(model, AutoTokenizer.from_pretrained(source))


def _cased_minilm(data: Path) -> SparseEncoder:
    settings = {"stage": "transfer_vocabulary", "initialization": "subtoken", "bias": "rows"}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = word_piece_tokenizer(data / "vocabularies" / "bert-base-cased-vocab.txt", lowercase=False)
        tokenizer.save_pretrained(folder)
        stage = TransferVocabularySettings.model_validate({**settings, "target": folder})
        encoder, _ = transfer(_masked_minilm(), stage, {}, Path(folder))
    return encoder


def _small_llama(data: Path) -> SparseEncoder:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=8000, special_tokens=["<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator(list(pieces(data))[:40_000], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=256, intermediate_size=704, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, tie_word_embeddings=True,
    )  # fmt: skip
    return _loaded(LlamaForCausalLM(config), fast)


def _loaded(model: Any, tokenizer: Any) -> SparseEncoder:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return SparseEncoder.load(folder, query_max_length=32, document_max_length=LENGTH)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
