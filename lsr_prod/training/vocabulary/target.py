"""Target of a vocabulary transfer: a tokenizer, and embeddings and bias of a model that has its tokens.

The tokenizer is read, or trained on the texts of a domain: lowercase, without accents (vocabulary-transfer, 6.6).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

import torch
from safetensors import safe_open
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder, backbone, layout_reader, tokenizer_files
from lsr_prod.storage.formats import bundle_format, digests

_WEIGHTS = "model.safetensors"
# Usual names of special tokens, for a tokenizer.json without a tokenizer_config.json.
_KNOWN = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
}
# Padding has id 0, as in BERT, for models that always pad with 0.
_SPECIAL = {role: names[0] for role, names in _KNOWN.items()}


@dataclass(frozen=True, slots=True)
class TargetModel:
    """Embeddings and bias of a model for the terms of a vocabulary."""

    embeddings: torch.Tensor  # [V', d'], in the order of the requested terms
    bias: torch.Tensor | None  # [V'] of its head; None: it has none, or it was not requested


def read_target(target: str) -> PreTrainedTokenizerFast:
    """Read the tokenizer of a model directory, of a folder, or of a ``tokenizer.json``."""
    if Path(target).is_file():
        return _from_file(Path(target))
    path = layout_reader.parts_folder(Path(target))
    if not (path / bundle_format.TOKENIZER_FILE).is_file():
        problem = f"{target} has no {bundle_format.TOKENIZER_FILE}"
        raise ConfigError("target", problem, "name a model directory, a tokenizer's folder or its file")
    try:
        tokenizer = tokenizer_files.tokenizer_reader(path).from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError("target", f"the tokenizer of {target} cannot be read ({error})", "save it again") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        problem = f"the tokenizer of {target} is not a fast tokenizer"
        raise ConfigError("target", problem, "convert it to a fast tokenizer")
    return tokenizer


def target_terms(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Return the tokens in the order of their ids."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=lambda token: vocabulary[token])


def digest_target(target: str) -> str:
    """Return the digest (hex) of a tokenizer; it does not depend on the path."""
    tokenizer = read_target(target)
    special = {name: str(token) for name, token in sorted(tokenizer.special_tokens_map.items())}
    return digests.digest_json({"tokenizer": tokenizer.backend_tokenizer.to_str(), "special": special})


def read_embeddings(folder: str, terms: Sequence[str], *, bias: bool) -> TargetModel:
    """Read input embeddings, and the bias of the head, of a model that has the tokens ``terms``."""
    path = check_embeddings(folder)
    vocabulary = read_target(folder).get_vocab()
    if missing := [term for term in terms if term not in vocabulary]:
        problem = f"{folder} lacks {len(missing)} of the target's {len(terms)} tokens, {missing[0]!r} among them"
        raise ConfigError("target_embeddings", problem, "name a model that was trained with the target's tokenizer")
    rows = torch.tensor([vocabulary[term] for term in terms])
    if _has_head(path):
        encoder = SparseEncoder.load(path)
        matrix, found = encoder.model.get_input_embeddings().weight, backbone.output_layer(encoder.model)[1]
        if encoder.card.output_vocabulary == "words":
            found = None
    else:
        model = AutoModel.from_pretrained(path, trust_remote_code=False, use_safetensors=True, dtype=torch.float32)
        matrix, found = model.get_input_embeddings().weight, None
    assert isinstance(matrix, torch.Tensor)
    return TargetModel(matrix.detach()[rows], found.detach()[rows] if bias and found is not None else None)


def check_embeddings(folder: str) -> Path:
    """Refuse a folder from which no embeddings can be read."""
    path = layout_reader.parts_folder(Path(folder))
    if not (path / _WEIGHTS).is_file() or not (path / "config.json").is_file():
        problem = f"{folder} has no config.json and {_WEIGHTS}"
        remedy = "name the folder of a model with the target's tokens, or take another initialization than semantic"
        raise ConfigError("target_embeddings", problem, remedy)
    return path


def _has_head(path: Path) -> bool:
    """Return whether the model of a folder has a vocabulary head."""
    architecture = (AutoConfig.from_pretrained(path, trust_remote_code=False).architectures or [""])[0]
    return "ForMaskedLM" in architecture or "ForCausalLM" in architecture


def digest_embeddings(folder: str) -> str:
    """Return the digest (hex) of the files from which embeddings are read."""
    path = check_embeddings(folder)
    files = [path / name for name in (_WEIGHTS, "config.json", bundle_format.TOKENIZER_FILE) if (path / name).is_file()]
    return digests.digest_json([file.to_json() for file in digests.digest_files(path, files)])


def has_bias(folder: str) -> bool:
    """Return whether the head of a model has a bias for each token; only the headers of safetensors are read."""
    path = check_embeddings(folder)
    if not _has_head(path):
        return False
    size = int(AutoConfig.from_pretrained(path, trust_remote_code=False).vocab_size)
    with safe_open(path / _WEIGHTS, "pt") as weights:
        biases = [name for name in weights.keys() if name.endswith("bias")]  # noqa: SIM118 - not a mapping
        return any(weights.get_slice(name).get_shape() == [size] for name in biases)


def _from_file(path: Path) -> PreTrainedTokenizerFast:
    try:
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        problem = f"{path} is not a readable tokenizer.json ({error})"
        raise ConfigError("target", problem, "name a tokenizer.json") from error
    names = {role: [name for name in known if backend.token_to_id(name) is not None] for role, known in _KNOWN.items()}
    return _fast(backend, **{role: found[0] for role, found in names.items() if found})


def _fast(backend: Tokenizer, **options: Any) -> PreTrainedTokenizerFast:
    made: PreTrainedTokenizerFast = PreTrainedTokenizerFast(tokenizer_object=backend, **options)  # type: ignore[no-untyped-call]
    return made


def train_tokenizer(
    texts: Iterable[str], *, model: Literal["word_piece", "bpe"], size: int, min_count: int
) -> PreTrainedTokenizerFast:
    """Train a tokenizer with the special tokens of BERT; only the counts of the words are kept in memory."""
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
    return _fast(tokenizer, model_input_names=["input_ids", "attention_mask"], **_SPECIAL)


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
