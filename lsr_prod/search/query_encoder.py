"""Encode queries with the bundle that encoded the index; other bundles are rejected.

If the card has inference-free queries, the tokenizer is enough; otherwise ONNX Runtime runs the model, and with
``separate`` the query encoder in the bundle.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lsr_prod.errors import LineageError
from lsr_prod.search.index_snapshot import Snapshot
from lsr_prod.search.query.sparse_query import SparseQuery, check_text
from lsr_prod.storage.formats.bundle_format import Bundle

if TYPE_CHECKING:
    from lsr_prod.inference import BundleEncoder
    from lsr_prod.inference.terms.words import TermReader

_T = TypeVar("_T")
_BATCH = 16  # texts that are encoded between two checks of the deadline


class QueryEncoder:
    """Opens the bundle of a version on first use, and that of a later version before it is current. Thread-safe."""

    def __init__(self, *, threads: int, verify: bool, bundle: Path | None) -> None:
        """Remember the settings; nothing is opened yet."""
        self._threads = threads
        self._verify = verify
        self._bundle = bundle
        # By digest of the bundle: one, or two while the current version changes.
        self._encoders: dict[str, BundleEncoder] = {}
        self._readers: dict[str, TermReader] = {}
        self._lock = threading.Lock()  # of the thread that opens a bundle, or releases some

    def of(self, snapshot: Snapshot) -> "BundleEncoder":
        """Return the encoder of a version."""
        from lsr_prod.inference import BundleEncoder

        def open_encoder(folder: Path) -> tuple[Bundle, BundleEncoder]:
            encoder = BundleEncoder(folder, threads=self._threads, verify=self._verify, kind="query")
            return encoder.bundle, encoder

        return self._find(self._encoders, snapshot, open_encoder)

    def reader(self, snapshot: Snapshot) -> "TermReader":
        """Return the reader of output terms for inference-free queries."""
        from lsr_prod.inference.terms.words import TermReader

        def open_reader(folder: Path) -> tuple[Bundle, TermReader]:
            return Bundle.load(folder, verify=self._verify), TermReader.open(folder)

        return self._find(self._readers, snapshot, open_reader)

    def _find(self, opened: dict[str, _T], snapshot: Snapshot, open_bundle: Callable[[Path], tuple[Bundle, _T]]) -> _T:
        digest = snapshot.version.bundle_digest
        if (ready := opened.get(digest)) is not None:  # without the lock: the bundle of another version may be loading
            return ready
        with self._lock:
            if digest not in opened:
                folder = self._bundle or snapshot.bundle
                bundle, found = open_bundle(folder)
                if bundle.digest != digest:
                    raise LineageError(
                        f"the bundle {folder} did not encode the index, whose bundle is {digest[:12]}; "
                        "give that bundle, or none: the index has a copy"
                    )
                opened[digest] = found
            return opened[digest]

    def close(self) -> None:
        """Release what is open; does not wait for a bundle that is being opened."""
        self._encoders, self._readers = {}, {}

    def prepare(self, snapshot: Snapshot) -> None:
        """Open what queries of a version need, if queries of another version needed it."""
        if self._encoders or self._readers:
            self.warm(snapshot)

    def keep(self, snapshot: Snapshot) -> None:
        """Release the bundles that a version does not need; a running query of another version keeps its own."""
        both: tuple[dict[str, Any], ...] = (self._encoders, self._readers)
        with self._lock:
            for opened in both:
                for digest in opened.keys() - {snapshot.version.bundle_digest}:
                    del opened[digest]

    def warm(self, snapshot: Snapshot) -> None:
        """Open the encoder of queries of a version."""
        if snapshot.card.inference_free:
            self.reader(snapshot)
            _ = snapshot.term_weights
        else:
            self.of(snapshot)

    def encode(self, snapshot: Snapshot, texts: Sequence[str]) -> list[SparseQuery]:
        """Encode texts for one version."""
        for text in texts:
            check_text(text)
        if snapshot.card.inference_free:
            reader, weights = self.reader(snapshot), snapshot.term_weights
            return [weights.weigh(*reader.query(text)) for text in texts]
        encoder = self.of(snapshot)
        batch = encoder.encode(texts, kind="query")
        names = encoder.vocabulary
        rows = (batch.row(i) for i in range(len(batch)))
        return [SparseQuery(ids, weights, tuple(names[i] for i in ids.tolist())) for ids, weights in rows]

    def encode_until(self, snapshot: Snapshot, texts: Sequence[str], deadline: float | None) -> list[SparseQuery]:
        """Encode texts for one version until a deadline passes.

        Returns:
            A query per text, empty for those that were not encoded.
        """
        if deadline is None:
            return self.encode(snapshot, texts)
        found: list[SparseQuery] = []
        while len(found) < len(texts) and time.monotonic() < deadline:
            found += self.encode(snapshot, texts[len(found) : len(found) + _BATCH])
        return found + [SparseQuery.empty()] * (len(texts) - len(found))
