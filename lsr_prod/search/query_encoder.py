"""Encode queries with the bundle that encoded the index; other bundles are rejected.

If the card has ``query_encoder: idf``, the tokenizer is enough; otherwise ONNX Runtime runs the model.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lsr_prod.errors import LineageError
from lsr_prod.formats.bundle import Bundle
from lsr_prod.search.query.sparse_query import SparseQuery, check_text
from lsr_prod.search.snapshot import Snapshot

if TYPE_CHECKING:
    from lsr_prod.inference import BundleEncoder
    from lsr_prod.terms.term_reader import TermReader

__all__ = ["QueryEncoder"]


class QueryEncoder:
    """Opens the bundle of a version on first use, and again when a later version has another bundle. Thread-safe."""

    def __init__(self, *, threads: int, verify: bool, bundle: Path | None) -> None:
        """Remember the settings; nothing is opened yet.

        Args:
            threads: ONNX Runtime threads that encode one query.
            verify: compare the bundle's files with their sha256 when it is opened.
            bundle: folder of the encoder, instead of the copy in the index.
        """
        self._threads = threads
        self._verify = verify
        self._bundle = bundle
        self._opened: tuple[str, BundleEncoder] | None = None
        self._reader: tuple[str, TermReader] | None = None
        self._lock = threading.Lock()

    def of(self, snapshot: Snapshot) -> "BundleEncoder":
        """Return the encoder of a version.

        Raises:
            LineageError: the given bundle did not encode the index.
            MissingExtraError: ONNX Runtime is not installed.
        """
        from lsr_prod.inference import BundleEncoder

        digest = snapshot.version.bundle_digest
        with self._lock:
            if self._opened is None or self._opened[0] != digest:
                folder = self._bundle or snapshot.bundle
                encoder = BundleEncoder(folder, threads=self._threads, verify=self._verify)
                _check(encoder.bundle, folder, digest)
                self._opened = (digest, encoder)
            return self._opened[1]

    def reader(self, snapshot: Snapshot) -> "TermReader":
        """Return the reader of output terms for inference-free queries.

        Raises:
            LineageError: the given bundle did not encode the index.
            ArtifactError: the bundle is damaged.
        """
        from lsr_prod.terms.term_reader import TermReader

        digest = snapshot.version.bundle_digest
        with self._lock:
            if self._reader is None or self._reader[0] != digest:
                folder = self._bundle or snapshot.bundle
                _check(Bundle.load(folder, verify=self._verify), folder, digest)
                self._reader = (digest, TermReader.open(folder))
            return self._reader[1]

    def warm(self, snapshot: Snapshot) -> None:
        """Open the encoder of queries of a version.

        Raises:
            LineageError: the given bundle did not encode the index.
            MissingExtraError: queries have a model, and ONNX Runtime is not installed.
        """
        if snapshot.card.query_encoder == "idf":
            self.reader(snapshot)
            _ = snapshot.term_weights
        else:
            self.of(snapshot)

    def encode(self, snapshot: Snapshot, texts: Sequence[str]) -> list[SparseQuery]:
        """Encode texts for one version.

        Raises:
            QueryError: a text is not a valid string.
            LineageError: the given bundle did not encode the index.
            MissingExtraError: queries have a model, and ONNX Runtime is not installed.
        """
        for text in texts:
            check_text(text)
        if snapshot.card.query_encoder == "idf":
            reader, weights = self.reader(snapshot), snapshot.term_weights
            return [weights.weigh(*reader.query(text)) for text in texts]
        encoder = self.of(snapshot)
        batch = encoder.encode(texts, kind="query")
        names = encoder.vocabulary
        rows = (batch.row(i) for i in range(len(batch)))
        return [SparseQuery(ids, weights, tuple(names[i] for i in ids.tolist())) for ids, weights in rows]


def _check(bundle: Bundle, folder: Path, digest: str) -> None:
    if bundle.digest != digest:
        raise LineageError(
            f"the bundle {folder} did not encode the index, whose bundle is {digest[:12]}; "
            "give that bundle, or none: the index has a copy"
        )
