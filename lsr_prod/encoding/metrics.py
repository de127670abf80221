"""Metrics of the encode job for Ray's Prometheus endpoint, one name a figure."""

from ray.util.metrics import Counter, Gauge, Histogram

from lsr_prod.encoding.results import BlockResult

__all__ = ["EncodeMetrics", "WaveMetrics"]


class EncodeMetrics:
    """What an encoder actor counts; rates are Prometheus' to take."""

    def __init__(self) -> None:
        self._documents = Counter("lsr_prod_encode_documents", "documents encoded")
        self._tokens = Counter("lsr_prod_encode_tokens", "tokens the model saw, padding excluded")
        self._padding = Gauge("lsr_prod_encode_padding_share", "share of padding among the last block's tokens")
        self._docs_per_s = Gauge("lsr_prod_encode_docs_per_s", "documents a second of the last block")

    def block(self, result: BlockResult) -> None:
        """Count a finished block."""
        documents = sum(cell.encoded for cell in result.cells if not cell.reused)
        if documents:
            self._documents.inc(documents)
            self._docs_per_s.set(documents / result.seconds)
        if result.counters.tokens:
            self._tokens.inc(result.counters.tokens)
            self._padding.set(result.counters.padding_share)


class WaveMetrics:
    """What the driver counts."""

    def __init__(self) -> None:
        self._wave = Gauge("lsr_prod_encode_wave", "waves that the table has")
        self._bad = Counter("lsr_prod_encode_quarantined", "quarantined rows", tag_keys=("reason",))
        self._commit = Histogram(
            "lsr_prod_encode_commit_seconds", "latency of a wave's commit", boundaries=[0.1, 0.3, 1, 3, 10, 30]
        )

    def committed(self, wave: int, reasons: dict[str, int], seconds: float) -> None:
        """Count a committed wave.

        Args:
            wave: its number.
            reasons: its quarantined rows by reason.
            seconds: latency of the commit.
        """
        self._wave.set(wave + 1)
        self._commit.observe(seconds)
        for reason, count in reasons.items():
            self._bad.inc(count, tags={"reason": reason})
