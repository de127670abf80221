"""A bundle without a model: its output vocabulary is the words of some texts, which are ranked by BM25.

A document has the BM25 saturation of each of its words as weight; queries are inference-free
(``formats.term_weights``). Words are runs of letters, digits and underscores in lower case; they are not stemmed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from lsr_prod.storage.drafts import write_file
from lsr_prod.storage.formats.bundle import BUNDLE_FILE, TOKENIZER_FILE, VOCABULARY_FILE, Bundle, digest_bundle
from lsr_prod.storage.formats.card import CARD_FILE, EncoderCard
from lsr_prod.storage.formats.digest import digest_json, record_bytes
from lsr_prod.storage.formats.sparse import SparseBatch
from lsr_prod.storage.formats.term_weights import IMPACT_STEP, word_impacts

_UNKNOWN = "[UNK]"  # has the id 0; no document and no query has it
_MAX_QUERY_WORDS = 4096


def write_word_bundle(folder: Path, texts: Sequence[str]) -> Bundle:
    """Write the bundle of the words of texts to an existing folder."""
    splitter = _tokenizer({_UNKNOWN: 0})
    words = {word for text in texts for word in _split(splitter, text)}
    vocabulary = [_UNKNOWN, *sorted(words)]
    tokenizer = _tokenizer({word: number for number, word in enumerate(vocabulary)})
    tokenizer.add_special_tokens([_UNKNOWN])
    card = EncoderCard(
        "BM25",
        len(vocabulary),
        digest_json(vocabulary),
        casing="lowercase",
        query_max_length=_MAX_QUERY_WORDS,
        query_encoder="idf",
    )
    write_file(folder / TOKENIZER_FILE, tokenizer.to_str().encode())
    write_file(folder / VOCABULARY_FILE, record_bytes(vocabulary))
    write_file(folder / CARD_FILE, card.to_bytes())
    bundle = Bundle(files=digest_bundle(folder), precision="fp32", top_k=len(vocabulary), model_digest="", inputs=())
    write_file(folder / BUNDLE_FILE, bundle.to_bytes())
    return bundle


def encode_words(folder: Path, texts: Sequence[str]) -> SparseBatch:
    """Return the BM25 weights of the words of texts; ``folder`` is their bundle."""
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    lengths = [len(encoding.ids) for encoding in encodings]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    rows = []
    for encoding, length in zip(encodings, lengths, strict=True):
        terms, counts = np.unique(np.array(encoding.ids, np.int64), return_counts=True)
        weights = (word_impacts(counts, np.full(len(terms), length), average) * IMPACT_STEP).astype(np.float32)
        rows.append(SparseBatch.from_topk(terms[None], weights[None]))
    return SparseBatch.concatenate(rows)


def _tokenizer(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, _UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True)
    return tokenizer


def _split(tokenizer: Tokenizer, text: str) -> list[str]:
    plain = tokenizer.normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(plain)]
