"""The bundle's runtime: text in, sparse vectors out, with tokenizers and ONNX Runtime only.

The encode job's actors, the Searcher's queries and the export's parity check all run this one path.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from lsr_prod.errors import MissingExtraError
from lsr_prod.formats.bundle import GRAPH_FILE, TOKENIZER_FILE, Bundle, read_vocabulary
from lsr_prod.formats.card import EncoderCard, Kind
from lsr_prod.formats.sparse import SparseBatch

__all__ = ["BundleEncoder"]


class BundleEncoder:
    """An opened bundle. Safe to share between threads: ONNX Runtime and the tokenizer keep no state of a call.

    Attributes:
        bundle: its manifest.
        card: its encoder card.
        vocabulary: list of the V output terms.
    """

    def __init__(self, folder: Path, *, threads: int = 1, verify: bool = False) -> None:
        """Open the bundle in ``folder``.

        Args:
            folder: the bundle.
            threads: ONNX Runtime threads of one call.
            verify: compare every file with its sha256 first.

        Raises:
            MissingExtraError: ONNX Runtime is not installed.
            ArtefactError: the bundle is incomplete, damaged or of another format.
        """
        try:
            import onnxruntime as ort
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "cpu") from error
        self.bundle = Bundle.load(folder, verify=verify)
        self.card = EncoderCard.load(folder)
        self.vocabulary = read_vocabulary(folder)
        self._tokenizers = {kind: self._tokenizer(folder, kind) for kind in ("query", "document")}
        self._pad_id = int(json.loads((folder / "config.json").read_bytes()).get("pad_token_id") or 0)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = ort.InferenceSession(folder / GRAPH_FILE, options, providers=["CPUExecutionProvider"])

    def _tokenizer(self, folder: Path, kind: Kind) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.card.max_length(kind))
        return tokenizer

    def encode(
        self, texts: Sequence[str], *, kind: Kind, top_k: int | None = None, batch_tokens: int = 1024
    ) -> SparseBatch:
        """Encode texts; a text without a visible character is an empty vector.

        Args:
            texts: any number of texts, prompts excluded.
            kind: decides prompt and length.
            top_k: terms kept of a vector; default (and at most) the bundle's ``top_k``.
            batch_tokens: tokens of one call of the graph, padding included.

        Returns:
            One vector a text, in order.

        Raises:
            FloatingPointError: the graph returned NaN or infinity for one of them.
        """
        visible = [i for i, text in enumerate(texts) if text.strip()]
        prompt = self.card.prompt(kind)
        encodings = self._tokenizers[kind].encode_batch([prompt + texts[i] for i in visible])
        ids = [encoding.ids for encoding in encodings]
        k = min(top_k or self.bundle.top_k, self.bundle.top_k)
        # Rows of like length share a batch, so that little of it is padding.
        by_length = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        parts = [self._run([ids[i] for i in rows]).top(k) for rows in _batches(by_length, ids, batch_tokens)]
        return SparseBatch.concatenate(parts).spread([visible[i] for i in by_length], len(texts))

    def _run(self, rows: Sequence[Sequence[int]]) -> SparseBatch:
        length = max(len(row) for row in rows)
        input_ids = np.full((len(rows), length), self._pad_id, dtype=np.int64)
        attention_mask = np.zeros((len(rows), length), dtype=np.int64)
        for i, row in enumerate(rows):
            input_ids[i, : len(row)] = row
            attention_mask[i, : len(row)] = 1
        feed: dict[str, npt.NDArray[np.int64]] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": np.zeros_like(input_ids),
        }
        terms, weights = self._session.run(["terms", "weights"], {name: feed[name] for name in self.bundle.inputs})
        if not np.isfinite(weights).all():
            raise FloatingPointError("the graph returned a weight that is no finite number; export the model again")
        return SparseBatch.from_topk(terms, weights)


def _batches(order: Sequence[int], ids: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Cut ``order`` (rising length) so that rows x longest row stays within ``batch_tokens``; one row at least."""
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * len(ids[i]) > batch_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
