"""Compute the tables of docs/scale.md from measured figures.

    python -m benchmarks.encode.scale_page [--write]

Inputs are in ``benchmarks/encode/scale``: the RESULT line of a measured run (``runs.txt``), a cluster with its prices
(``cluster.yaml``), and results of ``benchmarks.encode.duration`` (``durations.json``). Figures of search and of builds
are rows of docs/performance.md. Hours, storage, requests and cost are those of ``lsr-prod table estimate``. ``--write``
puts the tables between the markers of the page; a test holds them equal.
"""

import argparse
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsr_prod_contrib.estimates.cluster import ClusterDescription, load_cluster
from lsr_prod_contrib.estimates.estimate import Corpus, estimate
from lsr_prod_contrib.estimates.measured import read_runs

PAGE = Path(__file__).parents[2] / "docs/scale.md"
_INPUTS = Path(__file__).parent / "scale"
_DOCUMENTS = 10**10
_RUN_INDEX_BYTES = 1455.4  # of a document in the index of the run in runs.txt, with forward vectors, words and ids
_SHARD_DOCUMENTS = 1 << 20
# docs/log.md, "the driver of ten billion documents"
_DRIVER = {"CPU seconds": 30, "requests of the driver": 297, "peak resident MB": 1538, "seconds to resume": 0.8}


@dataclass(frozen=True, slots=True)
class Search:
    """One row of docs/performance.md for exact search with k = 10 on one thread.

    Attributes:
        terms: of a document.
        query_terms: of a query.
        resident_bytes: of a document, matching arrays and forward copy.
        ms: p50.
        documents: that were searched.
    """

    terms: int
    query_terms: int
    resident_bytes: float
    ms: float
    documents: float


# "Against exact SINDI" with the sizes of "Bytes and builds"; "Long documents in several shards"
_SEARCHES = (Search(20, 7, 62 + 64, 0.079, 1e6), Search(120, 25, 6.1e9 / 8_847_360, 10.47, 8_847_360))
_BUILD_CPU_S, _BUILD_DOCUMENTS = 10, 1e6  # "Near-exact search against Seismic": 120 terms, published, without words


def tables() -> dict[str, str]:
    """Return the tables by the name of their marker."""
    figures = _estimate().result()
    return {"encode": _encode(figures), "durations": _durations(), "search": _search()}


def _estimate() -> Any:
    runs = read_runs([str(_INPUTS / "runs.txt")])
    largest = runs.encode[-1]
    corpus = Corpus(_DOCUMENTS, round(largest.source_bytes / largest.documents * _DOCUMENTS))
    cluster: ClusterDescription = load_cluster(_INPUTS / "cluster.yaml")
    return estimate(corpus, runs, cluster)


def _encode(figures: dict[str, Any]) -> str:
    rows = {
        "source": f"{figures['source_bytes'] / 1e12:.2f} TB",
        "encoders": f"{figures['actors']:,} on {figures['nodes']} nodes",
        "hours to encode": f"{figures['encode_hours']:.1f}",
        "node hours": f"{figures['node_hours']:,.0f}",
        "sparse table": f"{figures['table_bytes'] / 1e12:.2f} TB",
        "index": f"{_DOCUMENTS * _RUN_INDEX_BYTES / 1e12:.2f} TB",
        "CPU hours to build the shards of the index, without words": f"{index_cpu_hours():.0f}",
        "requests: put, get, list, delete": ", ".join(
            f"{figures[f'{kind}_requests']:,}" for kind in ("put", "get", "list", "delete")
        ),
        **{f"driver: {name}": f"{value:,}" for name, value in _DRIVER.items()},
        "cost of machines": f"{figures['node_cost']:,.0f} USD",
        "cost of requests": f"{figures['request_cost']:,.2f} USD",
        "storage of the table": f"{figures['storage_cost_per_month']:,.0f} USD a month",
        "cost per million documents": f"{figures['cost_per_million_documents']:.3f} USD",
    }
    return _markdown(("figure", "10 billion documents"), [(name, str(value)) for name, value in rows.items()])


def _durations() -> str:
    found = json.loads((_INPUTS / "durations.json").read_text())
    rows = [
        (
            f"{one['documents'] / 1e9:g} billion",
            f"{one['actors']:,}",
            f"{one['undisturbed_hours']:.1f}",
            f"{one['hours']:.1f}",
            f"{one['hours_low']:.1f} to {one['hours_high']:.1f}",
            f"{one['busy_share']:.2f}",
            f"{one['lost_nodes']:,.0f}",
        )
        for one in found
    ]
    headings = (
        "documents",
        "encoders",
        "hours undisturbed",
        "hours, median",
        "of five seeds, 5 % to 95 %",
        "busy share",
        "nodes lost",
    )
    return _markdown(headings, rows)


def _search() -> str:
    rows = [
        (
            f"{one.terms}",
            f"{one.query_terms}",
            f"{per_node / 1e6:,.0f} million",
            f"{math.ceil(_DOCUMENTS / per_node):,}",
            f"{per_node / _SHARD_DOCUMENTS:,.0f}",
            f"{per_node * one.resident_bytes / 1e9:,.0f} GB",
            f"{per_node / one.documents * one.ms:,.0f} ms",
        )
        for one in _SEARCHES
        for per_node in (64e6, 256e6, 1e9)
    ]
    headings = (
        "terms of a document",
        "terms of a query",
        "documents of a node",
        "nodes of one replica",
        "shards of a node",
        "resident memory",
        "p50",
    )
    return _markdown(headings, rows)


def index_cpu_hours() -> float:
    """Return the CPU hours of all shards."""
    return _DOCUMENTS / _BUILD_DOCUMENTS * _BUILD_CPU_S / 3600


def _markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("--- |", "---|") for line in lines)


def updated(page: str) -> str:
    """Return the page with the tables between its markers."""
    for name, table in tables().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page, count = re.subn(
            pattern, lambda match, table=table: f"{match[1]}{table}\n{match[2]}", page, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"the page has {count} markers {name}; it needs one")
    return page


def main() -> int:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encode.scale_page")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/scale.md")
    if parser.parse_args().write:
        PAGE.write_text(updated(PAGE.read_text()))
    else:
        print("\n\n".join(tables().values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
