"""Metrics of the encode job for the Prometheus endpoint of Ray."""

from collections.abc import Mapping

from ray.util.metrics import Counter, Gauge, Histogram

from lsr_prod.encoding.results import BlockResult


class EncodeMetrics:
    """Metrics of an encoder actor; Prometheus computes rates."""

    def __init__(self) -> None:
        self._documents = Counter("lsr_prod_encode_documents", "documents encoded")
        self._tokens = Counter("lsr_prod_encode_tokens", "tokens that the model read, padding excluded")
        self._padding = Gauge("lsr_prod_encode_padding_share", "share of padding in the batches of the last block")
        self._docs_per_s = Gauge("lsr_prod_encode_docs_per_s", "documents per second in the model, last block")

    def block(self, result: BlockResult) -> None:
        """Record a finished block."""
        counts = result.counts
        if counts.encoded:
            self._documents.inc(counts.encoded)
            self._docs_per_s.set(counts.encoded / max(result.model_seconds, 1e-9))
        if counts.tokens:
            self._tokens.inc(counts.tokens)
            self._padding.set(counts.padding_share)


class WaveMetrics:
    """Metrics of the driver."""

    def __init__(self) -> None:
        self._wave = Gauge("lsr_prod_encode_wave", "committed waves")
        self._bad = Counter("lsr_prod_encode_quarantined", "quarantined rows", tag_keys=("reason",))
        self._commit = Histogram(
            "lsr_prod_encode_commit_seconds", "duration of the commit of a wave", boundaries=[0.1, 0.3, 1, 3, 10, 30]
        )

    def committed(self, wave: int, reasons: Mapping[str, int], seconds: float) -> None:
        """Record a committed wave."""
        self._wave.set(wave + 1)
        self._commit.observe(seconds)
        for reason, count in reasons.items():
            self._bad.inc(count, tags={"reason": reason})
