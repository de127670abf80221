"""Encoder of documents longer than the input of the model: cut, or split into passages and merged by maximum."""

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from tokenizers import Encoding, Tokenizer

from lsr_prod.cluster.workers import group_by_size
from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.errors import ArtifactError, ConfigError, LineageError
from lsr_prod.inference import BundleEncoder, Counters
from lsr_prod.storage import folders, is_remote
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE, TOKENIZER_FILE, EncoderCard, longest_input
from lsr_prod.storage.formats.sparse import SparseBatch

_CHARACTERS = 2_000_000  # text whose tokens are in memory at once
_CPU_TOKENS, _GPU_TOKENS = 512, 16_384  # per batch: the activations of a layer fit into a cache; a GPU is filled


@dataclass(frozen=True, slots=True)
class PinnedBundle:
    """Place and digest of a bundle."""

    place: str  # URI, or absolute path that every node sees
    digest: str  # digest of the bundle, which the sparse table records too
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # options of the object store

    def open(self) -> Path:
        """Return the folder of the bundle on this node, every file verified."""
        if not is_remote(self.place) and not (Path(self.place) / BUNDLE_FILE).is_file():
            raise ArtifactError(
                f"bundle {self.place} is not on node {_node()}; give a URI (s3://...) or a folder that every node sees"
            )
        folder, bundle = folders.open_bundle(self.place, self.options)
        if bundle.digest != self.digest:
            raise LineageError(
                f"bundle {self.place} on node {_node()} has the digest {bundle.digest}, but the table is encoded with "
                f"{self.digest}; restore that bundle, or give it under a name that is not used again"
            )
        return folder


def _node() -> str:
    """Return the name of this machine, and its address in the cluster if this process belongs to one."""
    name = socket.gethostname()
    return f"{name} ({ray.util.get_node_ip_address()})" if ray.is_initialized() else name  # type: ignore[no-untyped-call]


class DocumentEncoder:
    """Encoder of documents of any length. Safe to share between threads."""

    def __init__(self, encoder: BundleEncoder, encode: EncodeSettings, splitter: "PassageSplitter | None") -> None:
        """Wrap the encoder of a bundle; without a splitter, long documents are cut."""
        self._encoder, self._encode, self._splitter = encoder, encode, splitter
        default = _CPU_TOKENS if encoder.provider.startswith("CPU") else _GPU_TOKENS
        self._batches = {"top_k": encode.store_k, "batch_tokens": encode.batch_tokens or default}
        self._cut, self._lock = 0, threading.Lock()

    @property
    def counters(self) -> Counters:
        """Counters of the wrapped encoder; a passage counts as a document."""
        with self._lock:
            return replace(self._encoder.counters, cut=self._cut)

    def encode(self, texts: Sequence[str]) -> SparseBatch:
        """Return one vector per document, in order; a text without a visible character has an empty vector.

        The vector of a split document has for each term the largest weight of its passages, of these the ``store_k``
        heaviest, and of these the fewest that hold the share ``store_mass`` of their weight. ``store_k`` terms per
        passage suffice: a term that ``store_k`` others outweigh in a passage is outweighed by them in the document.
        """
        vectors = SparseBatch.concatenate([self._documents(some) for some in group_by_size(texts, len, _CHARACTERS)])
        return vectors if self._encode.store_mass is None else vectors.mass(self._encode.store_mass)

    def _documents(self, texts: Sequence[str]) -> SparseBatch:
        if self._splitter is None:
            rows = self._encoder.token_ids(texts, kind="document", max_length=self._encode.max_length)
            return self._encoder.encode_ids(rows, **self._batches)
        documents, cut = self._splitter.split(texts)
        with self._lock:
            self._cut += cut
        owners = np.repeat(np.arange(len(texts)), [len(passages) for passages in documents])
        rows = [row for passages in documents for row in passages]
        vectors = self._encoder.encode_ids(rows, **self._batches)
        return merge_passages(vectors, owners, len(texts)).top(self._encode.store_k)


class PassageSplitter:
    """Splits texts into windows of tokens; each has the prompt and the special tokens of a whole document."""

    def __init__(self, tokenizer: Tokenizer, *, prompt: str, max_length: int, stride: int, max_passages: int) -> None:
        """Compute the size of the windows."""
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._prompt, self._stride, self._max_passages = prompt, stride, max_passages
        self._head = self._tokenizer.encode("a").special_tokens_mask.index(0)
        self._tail = self._tokenizer.num_special_tokens_to_add(False) - self._head
        self._room = max_length - self._head - self._tail
        text = self._room - len(self._tokenizer.encode(prompt, add_special_tokens=False).ids)
        if text < 1:
            raise ConfigError(
                "encode.max_length",
                f"{max_length} leaves no token for text",
                f"give more than {max_length - text}, the special tokens and the prompt",
            )
        if stride > text:
            raise ConfigError(
                "encode.passage_stride",
                f"{stride} is more than the {text} tokens of text in a passage, text between them would be lost",
                f"give at most {text}, or half of it for passages that overlap",
            )

    def split(self, texts: Sequence[str]) -> tuple[list[list[list[int]]], int]:
        """Return the token ids of the passages of each text, and the number of texts that lost passages.

        A text without a visible character has no passage. A text that fits has one, the same as without a splitter.
        """
        visible = [i for i, text in enumerate(texts) if text.strip()]
        passages: list[list[list[int]]] = [[] for _ in texts]
        encodings = self._tokenizer.encode_batch([self._prompt + texts[i] for i in visible])
        cut = 0
        for i, encoding in zip(visible, encodings, strict=True):
            passages[i], whole = self._windows(encoding)
            cut += not whole
        return passages, cut

    def _windows(self, encoding: Encoding) -> tuple[list[list[int]], bool]:
        ids, end = encoding.ids, len(encoding.ids) - self._tail
        start = self._head + self._prompt_tokens(encoding)
        first, last = ids[:start], ids[end:]
        size = self._room - (start - self._head)
        step = min(self._stride, size)
        windows = 1 + max(0, -(-(end - start - size) // step))
        kept = min(windows, self._max_passages)
        starts = range(start, start + kept * step, step)
        return [first + ids[at : min(at + size, end)] + last for at in starts], kept == windows

    def _prompt_tokens(self, encoding: Encoding) -> int:
        """Number of tokens within the prompt; a token that spans its end and the start of the text is text."""
        if not self._prompt:
            return 0
        ends = (end for _, end in encoding.offsets[self._head : len(encoding.ids) - self._tail])
        return next((i for i, end in enumerate(ends) if end > len(self._prompt)), 0)


def merge_passages(vectors: SparseBatch, owners: np.typing.NDArray[np.int64], count: int) -> SparseBatch:
    """Merge vectors by maximum: for each owner and term the largest weight.

    Returns:
        ``count`` vectors, in the order of ``SparseBatch``.
    """
    rows = np.repeat(owners, np.diff(vectors.offsets))
    order = np.lexsort((-vectors.weights, vectors.terms, rows))
    rows, terms, weights = rows[order], vectors.terms[order], vectors.weights[order]
    heaviest = np.ones(len(rows), dtype=bool)
    heaviest[1:] = (rows[1:] != rows[:-1]) | (terms[1:] != terms[:-1])
    rows, terms, weights = rows[heaviest], terms[heaviest], weights[heaviest]
    order = np.lexsort((terms, -weights, rows))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(np.int64)
    return SparseBatch(offsets, terms[order], weights[order])


def document_factory(bundle: PinnedBundle, encode: EncodeSettings, **options: Any) -> EncoderFactory:
    """Return a factory of ``open_document_encoder``; the options are those of ``BundleEncoder``."""
    function = f"{__name__}:{open_document_encoder.__name__}"
    return EncoderFactory(function, {"bundle": bundle, "encode": encode, **options})


def open_document_encoder(bundle: PinnedBundle, encode: EncodeSettings, **options: Any) -> DocumentEncoder:
    """Open the document encoder of a bundle, which is compared with its pinned digest first."""
    folder = bundle.open()
    encoder = BundleEncoder(folder, **options)
    stride = encode.passage_stride
    return DocumentEncoder(encoder, encode, None if stride is None else _splitter(folder, encoder.card, encode, stride))


def check_lengths(folder: Path, encode: EncodeSettings) -> None:
    """Compare the lengths of the section ``encode`` with its bundle."""
    card, config = EncoderCard.load(folder), json.loads((folder / "config.json").read_bytes())
    if encode.max_length is not None and encode.max_length > (longest := longest_input(config, card.attention)):
        raise ConfigError(
            "encode.max_length",
            f"{encode.max_length} is more than the {longest} tokens that the model supports",
            f"give {longest} or less, and encode.passage_stride to read longer documents whole",
        )
    # Checked by a splitter even if documents are not split: both need room for text.
    _splitter(folder, card, encode, encode.passage_stride or 1)


def _splitter(folder: Path, card: EncoderCard, encode: EncodeSettings, stride: int) -> PassageSplitter:
    return PassageSplitter(
        Tokenizer.from_file(str(folder / TOKENIZER_FILE)),
        prompt=card.document_prompt,
        max_length=encode.max_length or card.document_max_length,
        stride=stride,
        max_passages=encode.max_passages,
    )
