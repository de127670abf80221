"""Training of a tokenizer for the texts of a domain: lowercase, without accents (vocabulary-transfer, 6.6)."""

from collections.abc import Iterable
from string import ascii_uppercase
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# Padding has id 0, as in BERT, for models that always pad with 0.
_SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def train_tokenizer(
    texts: Iterable[str], *, model: Literal["word_piece", "bpe"], size: int, min_count: int
) -> PreTrainedTokenizerFast:
    """Train a tokenizer. Texts are read once; only the counts of their words are kept in memory.

    Returns:
        A tokenizer with the special tokens of BERT.
    """
    common: dict[str, Any] = {
        "vocab_size": size,
        "min_frequency": min_count,
        "special_tokens": list(_SPECIAL.values()),
        "show_progress": False,
    }
    trainer: Any
    if model == "word_piece":
        tokenizer, trainer = _word_piece(), trainers.WordPieceTrainer(**common)
    else:
        tokenizer = _bpe()
        # Every byte has a token, so no text is unknown; capital letters need none after lowercasing.
        alphabet = [letter for letter in pre_tokenizers.ByteLevel.alphabet() if letter not in ascii_uppercase]
        trainer = trainers.BpeTrainer(**common, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    first, last = ((token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[first, last]
    )
    make: Any = PreTrainedTokenizerFast
    made: PreTrainedTokenizerFast = make(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **_SPECIAL
    )
    return made


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token=_SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=True, lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=_SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=True, lowercase=True, handle_chinese_chars=False)
    # The first word of a text also gets the marker of the start of a word, so each word has one token.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
