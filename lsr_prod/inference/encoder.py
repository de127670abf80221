"""Encode texts with a bundle: tokenizer, ONNX graph, sparse vectors.

The actors of the encode job, the queries of ``Searcher`` and the parity check of the export all use this class.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from lsr_prod.errors import ArtifactError, EncoderRaisedError
from lsr_prod.inference.session import GraphSession, Provider
from lsr_prod.logs import get_log
from lsr_prod.storage.formats import digests, sparse
from lsr_prod.storage.formats.bundle_format import (
    BUNDLE_FILE,
    GRAPH_FILE,
    QUERY_FOLDER,
    TOKENIZER_FILE,
    Bundle,
    EncoderCard,
    Kind,
    QueryGraph,
    read_vocabulary,
)

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Counters:
    """Work of an encoder since it was opened.

    Attributes:
        documents: encoded rows.
        tokens: their tokens, special ones included.
        padded_tokens: tokens of the batches, padding included.
        cut: documents split into passages whose text continues after the last passage.
    """

    documents: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    cut: int = 0

    @property
    def padding_share(self) -> float:
        """Share of the batches' tokens that are padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))


class BundleEncoder:
    """An opened bundle. Safe to share between threads.

    Examples:
        >>> from pathlib import Path
        >>> from lsr_prod.inference import BundleEncoder
        >>> encoder = BundleEncoder(Path("bundle"))
        >>> vectors = encoder.encode(["a lock"], kind="query")
        >>> [encoder.vocabulary[term] for term in vectors.row(0)[0][:2]]
        ['lock', 'locks']

    Attributes:
        bundle: its manifest.
        card: its encoder card; that of the query encoder if this encodes queries with a separate one.
        top_k: maximum terms of a vector.
        vocabulary: list of the V output terms.
        provider: ONNX Runtime's name of the execution provider.
    """

    def __init__(
        self,
        folder: Path,
        *,
        threads: int = 1,
        verify: bool = False,
        provider: Provider = "cpu",
        kind: Kind = "document",
    ) -> None:
        """Open the bundle in ``folder`` and run its graph once, so that the first text is not slowed down by the start.

        Args:
            folder: the bundle.
            threads: ONNX Runtime threads per call.
            verify: compare every file with its sha256 first.
            provider: execution provider of the graph.
            kind: texts that will be encoded, if the bundle has a separate query encoder; otherwise no difference.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
            ConfigError: the provider is not available.
            ArtifactError: the bundle is incomplete, damaged or of another format.
        """
        self.bundle = Bundle.load(folder, verify=verify)
        self.card, graph = EncoderCard.load(folder), QueryGraph(self.bundle.top_k, self.bundle.inputs)
        if kind == "query" and self.card.query_encoder == "separate":
            if self.bundle.query is None:
                raise ArtifactError(f"{folder / BUNDLE_FILE} has no query encoder; export the model again")
            folder, graph = folder / QUERY_FOLDER, self.bundle.query
            card = EncoderCard.load(folder)
            if card.vocabulary_sha256 != self.card.vocabulary_sha256:
                raise ArtifactError(
                    f"{folder} has other output terms than the document encoder; export the model again"
                )
            self.card = card
        self.top_k, self._inputs = graph.top_k, graph.inputs
        self.vocabulary = read_vocabulary(folder)
        self._folder = folder
        self._tokenizers: dict[int, Tokenizer] = {}
        for kind in ("query", "document"):
            self._tokenizer(self.card.max_length(kind))
        self._pad_id = digests.read_record(
            folder / "config.json", lambda config: int(config.get("pad_token_id") or 0), "export the model again"
        )
        self._session = GraphSession(folder / GRAPH_FILE, threads=threads, provider=provider)
        self.provider = self._session.provider
        if self.bundle.precision == "int8" and not self.provider.startswith("CPU"):
            fields = {"provider": self.provider, "remedy": "export with precision fp16, or encode with provider cpu"}
            log.warning("8-bit products run on the CPU", extra={"fields": fields})
        self._counters, self._lock = Counters(), threading.Lock()
        try:
            self._run([[self._pad_id] * 8])
        except EncoderRaisedError as error:
            raise ArtifactError(f"the graph in {folder} encodes no row ({error}); export the model again") from error
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """The work done so far."""
        with self._lock:
            return self._counters

    def encode(
        self, texts: Sequence[str], *, kind: Kind, top_k: int | None = None, batch_tokens: int = 512
    ) -> sparse.SparseBatch:
        """Encode texts; a text of white space becomes an empty vector.

        Args:
            texts: any number of texts, prompts excluded.
            kind: selects prompt and length.
            top_k: terms kept per vector; default (and maximum): the bundle's ``top_k``.
            batch_tokens: tokens per call of the graph, padding included.

        Returns:
            One vector per text, in order.

        Raises:
            ConfigError: ``kind`` is query, and queries have no model.
            EncoderRaisedError: the graph fails, or returns what is no vector of the vocabulary.
        """
        self.card.check_model_encodes(kind)
        return self.encode_ids(self.token_ids(texts, kind=kind), top_k=top_k, batch_tokens=batch_tokens)

    def token_ids(self, texts: Sequence[str], *, kind: Kind, max_length: int | None = None) -> list[list[int]]:
        """Tokenize texts, with special tokens and the prompt of ``kind``.

        Args:
            texts: any number of texts, prompts excluded.
            kind: selects prompt and length.
            max_length: longest row, special tokens included; default: the card's for ``kind``.

        Returns:
            One row of token ids per text; an empty row for a text of white space.
        """
        visible = [i for i, text in enumerate(texts) if text.strip()]
        prompt = self.card.prompt(kind)
        tokenizer = self._tokenizer(max_length or self.card.max_length(kind))
        ids: list[list[int]] = [[] for _ in texts]
        for i, encoding in zip(visible, tokenizer.encode_batch([prompt + texts[i] for i in visible]), strict=True):
            ids[i] = encoding.ids
        return ids

    def encode_ids(
        self, rows: Sequence[Sequence[int]], *, top_k: int | None = None, batch_tokens: int = 512
    ) -> sparse.SparseBatch:
        """Encode rows of token ids, as ``token_ids`` returns them; an empty row becomes an empty vector.

        Args:
            rows: any number of rows of any length the model takes, special tokens included.
            top_k: terms kept per vector; default (and maximum): the bundle's ``top_k``.
            batch_tokens: tokens per call of the graph, padding included.

        Returns:
            One vector per row, in order.

        Raises:
            EncoderRaisedError: the graph fails, or returns what is no vector of the vocabulary.
        """
        k = min(top_k or self.top_k, self.top_k)
        # Rows of similar length share a batch, so that there is little padding.
        lengths = [len(row) for row in rows]
        by_length = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i])
        batches = token_batches(by_length, lengths, batch_tokens)
        parts = [self._run([rows[i] for i in batch]).top(k) for batch in batches]
        return sparse.SparseBatch.concatenate(parts).spread(by_length, len(rows))

    def _tokenizer(self, max_length: int) -> Tokenizer:
        # One tokenizer per length, because truncation is a state of a tokenizer that threads would share.
        if max_length not in self._tokenizers:
            path = self._folder / TOKENIZER_FILE
            try:
                tokenizer = Tokenizer.from_file(str(path))
                tokenizer.no_padding()
                tokenizer.enable_truncation(max_length)
            except Exception as error:  # tokenizers raises bare Exceptions
                raise ArtifactError(f"{path} does not open ({error}); export the model again") from error
            self._tokenizers[max_length] = tokenizer
        return self._tokenizers[max_length]

    def _run(self, rows: Sequence[Sequence[int]]) -> sparse.SparseBatch:
        terms, weights = self._graph(rows)
        if terms.ndim != 2 or terms.shape[0] != len(rows) or terms.shape != weights.shape:
            raise EncoderRaisedError(f"the graph returned {terms.shape} terms and {weights.shape} weights")
        if not np.isfinite(weights).all():
            raise EncoderRaisedError("the graph returned a weight that is not finite")
        if terms.size and not 0 <= int(terms.min()) <= int(terms.max()) < len(self.vocabulary):
            raise EncoderRaisedError(f"the graph returned a term outside the vocabulary of {len(self.vocabulary)}")
        lengths = [len(row) for row in rows]
        with self._lock:
            self._counters += Counters(len(rows), sum(lengths), len(rows) * max(lengths))
        return sparse.SparseBatch.from_topk(terms, weights)

    def _length(self, longest: int) -> int:
        """Return the length of a batch: on a GPU a multiple of 8, which its matrix units take, if the model has it."""
        most = max(self.card.query_max_length, self.card.document_max_length)
        return longest if self.provider.startswith("CPU") else max(longest, min(-(-longest // 8) * 8, most))

    def _graph(
        self, rows: Sequence[Sequence[int]]
    ) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.float32]]:
        shape = len(rows), self._length(max(len(row) for row in rows))
        input_ids = np.full(shape, self._pad_id, dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        for i, row in enumerate(rows):
            input_ids[i, : len(row)] = row
            attention_mask[i, : len(row)] = 1
        feed = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": np.zeros(shape, dtype=np.int64),
        }
        terms, weights = self._session.run({name: feed[name] for name in self._inputs}, ["terms", "weights"])
        return terms, weights


def token_batches(order: Sequence[int], lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Split ``order`` (rising length) into batches with rows x longest row <= ``batch_tokens``, or of one row."""
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * lengths[i] > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
