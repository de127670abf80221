"""Estimate of a run on a cluster: hours, storage, requests and cost, from the figures of measured runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lsr_prod_contrib.estimates.cluster import REQUEST_KINDS, ClusterDescription
from lsr_prod_contrib.estimates.dry_run import RunSize, Speed, count_requests, fit_speed
from lsr_prod_contrib.estimates.measured import EncodeRun, MeasuredRuns
from lsr_prod_contrib.estimates.sample import SampledTokens

SIMILAR = 1.5  # ratio of the bytes per document of two corpora up to which their tokens per byte are comparable

Origin = Literal["measured", "given", "computed"]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The corpus to encode."""

    documents: int  # their number
    source_bytes: int  # bytes of its files
    sample: SampledTokens | None = None  # tokens of a sample; None: tokens are computed from the bytes


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of an estimate."""

    value: float | int | str  # number or text
    origin: Origin  # where it comes from
    note: str  # formula or source


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures by name, in the order of the output, and what is uncertain."""

    figures: Mapping[str, Figure]  # name -> figure; the unit is part of the name
    warnings: tuple[str, ...] = ()  # sentences

    def result(self) -> dict[str, Any]:
        """Return values, origins and notes by name, for the ``RESULT`` line."""
        values: dict[str, Any] = {name: figure.value for name, figure in self.figures.items()}
        origins = {name: figure.origin for name, figure in self.figures.items()}
        notes = {name: figure.note for name, figure in self.figures.items()}
        return {**values, "origins": origins, "notes": notes, "warnings": list(self.warnings)}


def estimate(corpus: Corpus, runs: MeasuredRuns, cluster: ClusterDescription | None) -> Estimate:
    """Estimate time, storage, requests and cost of encoding a corpus, and of indexing it if such a run is given."""
    speed, last = fit_speed(runs.encode), runs.encode[-1]
    figures: dict[str, Figure] = {
        "documents": Figure(corpus.documents, "given", "--documents"),
        "source_bytes": Figure(corpus.source_bytes, "given", "--bytes"),
    }
    tokens, figures["tokens"] = _tokens(corpus, runs.encode)
    nodes, actors, factor = (cluster.nodes, cluster.actors, cluster.speed) if cluster else (1, last.actors, 1.0)
    where: tuple[Origin, str] = ("given", f"cluster {cluster.name}") if cluster else ("measured", "as in the run")
    busy = cluster.busy_share if cluster else None
    figures |= {
        "nodes": Figure(nodes, *where),
        "actors": Figure(actors, *where),
        "speed": Figure(factor, *where),
        "tokens_per_second_per_actor": _rate(speed, cluster),
        "busy_share": Figure(busy, *where) if busy else Figure(speed.busy_share, "measured", "encode"),
        "fixed_seconds": Figure(speed.fixed_s, speed.fixed_origin, speed.fixed_note),
    }
    encode_s = speed.seconds(tokens, actors, speed=factor, busy_share=busy)
    formula = "fixed_seconds + tokens / (tokens per second per actor x actors x busy_share)"
    figures["encode_hours"] = Figure(encode_s / 3600, "computed", formula)
    index_s = 0.0
    if runs.index is not None:
        share = corpus.documents / runs.index.documents_rebuilt
        index_s = runs.index.seconds * share * last.actors / (actors * factor)
        figures["index_hours"] = Figure(index_s / 3600, "computed", "seconds per document of the run, by actors")
    hours = (encode_s + index_s) / 3600
    figures["hours"] = Figure(hours, "computed", "encode_hours + index_hours" if runs.index else "encode_hours")
    figures["node_hours"] = Figure(hours * nodes, "computed", "hours x nodes")
    figures |= _storage(corpus, runs)
    requests = count_requests(RunSize.of_bytes(corpus.source_bytes, int(figures["table_bytes"].value)))
    for kind in REQUEST_KINDS:
        figures[f"{kind}_requests"] = Figure(requests[kind], "computed", "of encode, by size; see docs/encoding.md")
    if cluster is not None:
        figures |= _costs(figures, corpus.documents, cluster)
    return Estimate(figures, _warnings(corpus, runs))


def _rate(speed: Speed, cluster: ClusterDescription | None) -> Figure:
    if cluster is None:
        return Figure(speed.tokens_per_s, "measured", "of a busy actor")
    return Figure(
        speed.tokens_per_s * cluster.speed, "computed", f"{speed.tokens_per_s:,.0f} of a busy actor, times speed"
    )


def _tokens(corpus: Corpus, runs: tuple[EncodeRun, ...]) -> tuple[float, Figure]:
    if corpus.sample is not None:
        tokens = corpus.sample.tokens_per_document * corpus.documents
        note = f"{corpus.sample.tokens_per_document:.1f} tokens per document in a sample of {corpus.sample.documents:,}"
    else:
        source = sum(run.bytes_per_document * run.encoded for run in runs)
        tokens = corpus.source_bytes * sum(run.tokens for run in runs) / source
        note = f"{tokens / corpus.source_bytes:.4f} tokens per source byte of the run"
    return tokens, Figure(round(tokens), "computed", note)


def _storage(corpus: Corpus, runs: MeasuredRuns) -> dict[str, Figure]:
    table = corpus.documents * sum(run.table_bytes for run in runs.encode) / sum(run.documents for run in runs.encode)
    figures = {"table_bytes": Figure(round(table), "computed", "table bytes per document of the run")}
    total, note = table, "table_bytes"
    if runs.index is not None:
        index = corpus.documents * runs.index.bytes_per_doc
        figures["index_bytes"] = Figure(round(index), "computed", "index bytes per document of the run")
        total, note = table + index, "table_bytes + index_bytes"
    return {**figures, "storage_bytes": Figure(round(total), "computed", note)}


def _costs(figures: Mapping[str, Figure], documents: int, cluster: ClusterDescription) -> dict[str, Figure]:
    node = float(figures["node_hours"].value) * cluster.price_per_node_hour
    requests = sum(
        float(figures[f"{kind}_requests"].value) / 1000 * cluster.request_prices[kind] for kind in REQUEST_KINDS
    )
    month = float(figures["storage_bytes"].value) / 1e9 * cluster.storage_price_per_gb_month
    cost = node + requests
    return {
        "node_cost": Figure(node, "computed", f"node_hours x {cluster.price_per_node_hour:g} (given)"),
        "request_cost": Figure(requests, "computed", "requests x prices (given)"),
        "cost": Figure(cost, "computed", "node_cost + request_cost"),
        "cost_per_million_documents": Figure(cost / documents * 1e6, "computed", "cost / documents"),
        "storage_cost_per_month": Figure(
            month, "computed", f"storage_bytes x {cluster.storage_price_per_gb_month:g} per GB (given)"
        ),
        "currency": Figure(cluster.currency, "given", f"cluster {cluster.name}"),
    }


def _warnings(corpus: Corpus, runs: MeasuredRuns) -> tuple[str, ...]:
    measured = sum(run.source_bytes for run in runs.encode) / sum(run.rows_in for run in runs.encode)
    size = corpus.source_bytes / corpus.documents
    if max(size / measured, measured / size) <= SIMILAR:
        return ()
    found = f"the corpus has {size:,.0f} bytes per document, the measured run {measured:,.0f}"
    if corpus.sample is None:
        return (f"{found}: tokens and table bytes are uncertain; give --sample for the tokens",)
    return (f"{found}: table bytes are uncertain",)
