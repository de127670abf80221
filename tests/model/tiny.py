"""Tiny checkpoints of every architecture for tests: random weights, 97 words, 64 positions."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    CamembertConfig,
    CamembertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    MPNetConfig,
    MPNetForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
WORDS = [f"{'w' if i % 2 else 'W'}{i}" for i in range(92)]  # half of them cased
VOCABULARY = [*SPECIAL, *WORDS]
ARCHITECTURES = ("albert", "bert", "distilbert", "modernbert", "roberta")
CAUSAL = ("gpt_neox", "llama", "qwen2", "qwen3")
# The padding id is not 0: RoBERTa counts positions from it, and a runtime that pads with 0 would fail.
_PAD = 7
VOCABULARY[0], VOCABULARY[_PAD] = VOCABULARY[_PAD], VOCABULARY[0]
_COMMON = {"vocab_size": len(VOCABULARY), "pad_token_id": _PAD}
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 72,
}


def causal_tokenizer(*, bos: bool) -> PreTrainedTokenizerFast:
    """Create the tokenizer of a decoder: with or without a start token, without end token and padding."""
    backend = tiny_tokenizer().backend_tokenizer
    backend.post_processor = (
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)]) if bos else None
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def tiny_tokenizer(*, lowercase: bool = False) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    roles = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", mask_token="<mask>", **roles
    )


def tiny_model(architecture: str) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = _MODELS[architecture]()
        for parameter in model.parameters():
            # Initial biases are zero and norms one: without this, a head that ignores them would pass.
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def tiny_checkpoint(folder: Path, architecture: str, *, layers: int = 2) -> Path:
    model: Any = tiny_model(architecture)
    if layers < 2:
        model.base_model.encoder.layer = model.base_model.encoder.layer[:layers]
        model.config.num_hidden_layers = layers
    model.save_pretrained(folder)
    tokenizer = causal_tokenizer(bos=architecture == "llama") if architecture in CAUSAL else tiny_tokenizer()
    tokenizer.save_pretrained(folder)
    return folder


# Two heads share one key and value. The output matrix is tied in Llama and Qwen2, and untied in the other two.
_DECODER = {"vocab_size": len(VOCABULARY), "bos_token_id": 2, "eos_token_id": 3, **_SIZES}
_GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}

_MODELS = {
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**_DECODER, tie_word_embeddings=False)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**(_DECODER | _GROUPED), tie_word_embeddings=True)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**(_DECODER | _GROUPED), tie_word_embeddings=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**(_DECODER | _GROUPED), tie_word_embeddings=False)),
    "albert": lambda: AlbertForMaskedLM(AlbertConfig(**_COMMON, **_SIZES, embedding_size=16)),
    "bert": lambda: BertForMaskedLM(BertConfig(**_COMMON, **_SIZES)),
    "camembert": lambda: CamembertForMaskedLM(CamembertConfig(**_COMMON, **_SIZES)),
    "distilbert": lambda: DistilBertForMaskedLM(
        DistilBertConfig(**_COMMON, dim=32, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=72)
    ),
    "modernbert": lambda: ModernBertForMaskedLM(
        ModernBertConfig(
            **_COMMON, **_SIZES, local_attention=8, bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3
        )
    ),
    "mpnet": lambda: MPNetForMaskedLM(MPNetConfig(**_COMMON, **_SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**_COMMON, **_SIZES)),
    "xlm_roberta": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**_COMMON, **_SIZES)),
}
