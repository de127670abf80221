"""Tiny checkpoints of families of models: random weights, and the family's own class of tokenizer over few pieces.

Every checkpoint is written by transformers, as a published one is: ``config.json``, ``model.safetensors`` and the files
of the tokenizer. The weights are drawn anew, so that no bias is 0 and no norm is 1.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEXTS = (
    "how does an inverted index work?",
    "Zürich, CAFÉ and naïve",
    "Cafe\u0301 nai\u0308ve",  # decomposed
    "東京の天気 서울",
    "emoji 👩‍👩‍👧 and \u200bzero\u200dwidth\ufeff",
    "ﬁne ½ ①",  # compatibility forms
    "\u202eright to left\u202c עברית",
    "tab\tline\nfeed\u00a0no-break",
    "a",
    "[MASK] </s> <pad> [SEP]",  # special tokens in a text
    "\U0001d518\U00010348 rare planes",
    "word " * 200,
    "東京" * 100,
)
"""Odd Unicode and lengths, cut at the maximum of the checkpoint."""

BLANK = ("", " \t\n", "\u00a0\u2003")
"""Texts of white space only: our vector is empty, while sentence-transformers encodes the special tokens."""

_SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 48}
_POSITIONS = 40
_OFFSET = {"max_position_embeddings": _POSITIONS + 2}  # positions start after a padding id of 1
_WORDS = ("how", "an", "index", "word", "and", "work", "the", "cafe", "naive", "right")


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models of transformers."""

    config: str  # class name of its configuration
    model: str  # class name of its language model
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    settings: dict[str, Any]
    attention: str = "bidirectional"  # of the encoder
    latents: int = 0  # of a sparse autoencoder of sentence-transformers on the model; 0: a vocabulary head


def write_checkpoint(family: Family, folder: Path) -> Path:
    """Write the checkpoint of a family."""
    tokenizer = family.tokenizer()
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("pad", "bos", "eos", "cls", "sep")}
    settings = {"max_position_embeddings": _POSITIONS, **_SIZES, **family.settings, **ids}
    config = getattr(transformers, family.config)(vocab_size=len(tokenizer), **settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, family.model)(config)
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    if not family.latents:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder
    parts = folder.with_name("backbone")
    model.save_pretrained(parts)
    tokenizer.save_pretrained(parts)
    _add_autoencoder(parts, family.latents, folder)
    return folder


def _add_autoencoder(backbone: Path, latents: int, folder: Path) -> None:
    """Save the backbone with an autoencoder as sentence-transformers does."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    width = _SIZES["hidden_size"]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer = SparseAutoEncoder(width, latents, k=latents // 4, k_aux=width)
        for parameter in layer.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    modules = [Transformer(str(backbone)), Pooling(width, "mean"), layer]
    SparseEncoder(modules=modules, device="cpu").save(str(folder))


def _characters() -> list[str]:
    texts = " ".join(TEXTS)
    forms = {unicodedata.normalize(form, case) for form in ("NFC", "NFD", "NFKC") for case in (texts, texts.lower())}
    return sorted({character for text in forms for character in text if character.strip()})


def _word_pieces(name: str, special: str) -> Callable[[], PreTrainedTokenizerFast]:
    """Tokenizer of word pieces; ``special`` are the tokens for padding, unknown, start, end and mask."""

    def build() -> PreTrainedTokenizerFast:
        pieces = [*_WORDS, *_characters(), *(f"##{character}" for character in _characters())]
        vocabulary = list(dict.fromkeys([*special.split(), *pieces]))
        made: PreTrainedTokenizerFast = getattr(transformers, name)(vocab={v: i for i, v in enumerate(vocabulary)})
        made.model_max_length = _POSITIONS
        return made

    return build


def _sentence_pieces(name: str, special: str) -> Callable[[], PreTrainedTokenizerFast]:
    def build() -> PreTrainedTokenizerFast:
        pieces = ["▁", *(f"▁{word}" for word in _WORDS), *_characters()[:-5]]  # some characters are unknown
        vocabulary = [(piece, -1.0 - i / 100) for i, piece in enumerate(pieces) if piece not in special.split()]
        made: PreTrainedTokenizerFast = getattr(transformers, name)(
            vocab=[*((token, 0.0) for token in special.split()), *vocabulary]
        )
        made.model_max_length = _POSITIONS
        return made

    return build


def _bytes(name: str, special: str, roles: dict[str, str]) -> Callable[[], PreTrainedTokenizerFast]:
    def build() -> PreTrainedTokenizerFast:
        merges = [("a", "n"), ("an", "d"), ("Ġ", "w"), ("Ġw", "o"), ("r", "d"), ("Ġwo", "rd"), ("i", "n")]
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = [*special.split(), *alphabet, *(a + b for a, b in merges)]
        made: PreTrainedTokenizerFast = getattr(transformers, name)(
            vocab={v: i for i, v in enumerate(vocabulary)}, merges=merges, **roles
        )
        made.model_max_length = _POSITIONS
        return made

    return build


_BERT, _ROBERTA = "[PAD] [UNK] [CLS] [SEP] [MASK]", "<s> <pad> </s> <unk> <mask>"
_bert = _word_pieces("BertTokenizer", _BERT)
_roberta = _bytes("RobertaTokenizer", _ROBERTA, {})
_xlm_roberta = _sentence_pieces("XLMRobertaTokenizer", _ROBERTA)
_decoder = _bytes(
    "GPTNeoXTokenizer",
    "<unk> <s> </s>",
    {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"},
)
_GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}

FAMILIES = {
    "BERT": Family("BertConfig", "BertForMaskedLM", _bert, {}),
    "DistilBERT": Family(
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        _word_pieces("DistilBertTokenizer", _BERT),
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    ),
    "RoBERTa": Family("RobertaConfig", "RobertaForMaskedLM", _roberta, _OFFSET),
    "ModernBERT": Family("ModernBertConfig", "ModernBertForMaskedLM", _roberta, {"local_attention": 8}),
    "ALBERT": Family(
        "AlbertConfig",
        "AlbertForMaskedLM",
        _sentence_pieces("AlbertTokenizer", "<pad> <unk> [CLS] [SEP] [MASK]"),
        {"embedding_size": 16},
    ),
    "XLM-RoBERTa": Family("XLMRobertaConfig", "XLMRobertaForMaskedLM", _xlm_roberta, _OFFSET),
    "CamemBERT": Family(
        "CamembertConfig", "CamembertForMaskedLM", _sentence_pieces("CamembertTokenizer", _ROBERTA), _OFFSET
    ),
    "ELECTRA": Family("ElectraConfig", "ElectraForMaskedLM", _bert, {"embedding_size": 16}),
    "MPNet": Family(
        "MPNetConfig", "MPNetForMaskedLM", _word_pieces("MPNetTokenizer", "<s> <pad> </s> [UNK] <mask>"), _OFFSET
    ),
    "DeBERTa-v2": Family(
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        _sentence_pieces("DebertaV2Tokenizer", "[PAD] [UNK] [CLS] [SEP] [MASK]"),
        {"relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True}
        | {"pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "type_vocab_size": 0},
    ),
    "NomicBERT": Family("NomicBertConfig", "NomicBertForMaskedLM", _bert, {}),
    "GTE": Family("GteConfig", "GteForMaskedLM", _xlm_roberta, {}),
    "Jina v3": Family("JinaEmbeddingsV3Config", "JinaEmbeddingsV3ForMaskedLM", _xlm_roberta, {}),
    "EuroBERT": Family("EuroBertConfig", "EuroBertForMaskedLM", _roberta, _GROUPED),
    "BERT, CSR": Family("BertConfig", "BertModel", _bert, {}, latents=256),
    "T5": Family("T5Config", "T5ForConditionalGeneration", _xlm_roberta, {"d_model": 32, "d_kv": 16, "d_ff": 48}),
    "GPT-2": Family("GPT2Config", "GPT2LMHeadModel", _decoder, {}, "causal"),
    "GPT-NeoX": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", _decoder, {}, "causal"),
    "Llama": Family("LlamaConfig", "LlamaForCausalLM", _decoder, _GROUPED, "causal"),
    "Qwen2": Family("Qwen2Config", "Qwen2ForCausalLM", _decoder, _GROUPED, "causal"),
    "Qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", _decoder, _GROUPED, "causal"),
}
"""Families by the name in the table of the documentation."""
