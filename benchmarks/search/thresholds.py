"""What thresholds keep of the exact answer, and what they cost, on real vectors.

    python -m benchmarks.search.thresholds DATA [--folder .bench]

A threshold lets only those documents match that share enough with the query: a *count* of terms (``min_terms``), a
*ratio* of its terms (``overlap_threshold``), or a share of its *weight*, which no call offers: a document passes if
the weights of the shared terms are at least that share of the weights of all terms. Collections:
``benchmarks.search.passages``, with whole queries and with their 7 heaviest terms. recall@10 compares the ten best
documents that pass with the ten best of all; "no hits" is the share of queries for which nothing passes. The cost is
the share of documents that pass, which a count or another stage has to read, and the p50 of ``search_vector`` where
the call has the threshold, as a ratio to the call without one; the thresholds of a query are timed in turns.

Prints tables and ``RESULT {json}``: recall@10 by threshold (``count2_terms7``, ``ratio0.4_all``, ``weight0.3_all``).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.search.data import Collection, Queries
from benchmarks.search.passages import make_passages
from benchmarks.search.published import Published
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.search.query.sparse_query import required_terms

__all__ = ["THRESHOLDS", "Threshold", "measure_quality"]

K = 10
PASSES = 3
EPSILON = 1e-6  # of sums in different order
SIZES = {"all": 0, "terms7": 7}


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold.

    Attributes:
        kind: what is compared with ``value``.
        value: number of terms, or share of terms or of weight.
    """

    kind: Literal["count", "ratio", "weight"]
    value: float

    @property
    def name(self) -> str:
        """The kind and the value."""
        return f"{self.kind}{self.value:g}"

    def passing(
        self,
        shared: npt.NDArray[np.int64],
        covered: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float32],
    ) -> npt.NDArray[np.bool_]:
        """Return which documents pass.

        Args:
            shared: number of shared terms of each document.
            covered: sum of the query's weights of the shared terms.
            weights: weights of the query.
        """
        if self.kind == "weight":
            return (covered >= self.value * float(weights.sum(dtype=np.float64)) - EPSILON) & (shared > 0)
        return shared >= required_terms(len(weights), **self.options())

    def options(self) -> dict[str, Any]:
        """Return the keywords of a search; without meaning for a weight."""
        if self.kind == "count":
            return {"min_terms": int(self.value), "overlap_threshold": 0.0}
        return {"min_terms": 1, "overlap_threshold": self.value}


THRESHOLDS = (
    *(Threshold("count", count) for count in (1, 2, 3, 4)),
    *(Threshold("ratio", share) for share in (0.1, 0.2, 0.3, 0.4, 0.5)),
    *(Threshold("weight", share) for share in (0.1, 0.2, 0.3, 0.4, 0.5)),
)


@dataclass(slots=True)
class Quality:
    """Means over queries: recall@10, share of queries without hits, share of documents that pass."""

    recall: float = 0.0
    empty: float = 0.0
    passing: float = 0.0


def measure_quality(collection: Collection, queries: Queries) -> dict[Threshold, Quality]:
    """Compare the best documents that pass each threshold with the best of all, by exact scores."""
    found = {threshold: Quality() for threshold in THRESHOLDS}
    share = 1 / len(queries)
    offsets, documents, _ = collection.postings
    for i in range(len(queries)):
        terms, weights = queries[i]
        scores, shared = collection.scores(terms, weights)
        covered = np.zeros(len(collection))
        for term, weight in zip(terms, weights, strict=True):
            covered[documents[offsets[term] : offsets[term + 1]]] += float(weight)
        right = min(K, int(np.count_nonzero(scores)))
        floor = np.partition(scores, len(scores) - K)[-K:].min() if right == K else 0.0
        best = (scores >= floor * (1 - EPSILON)) & (scores > 0)
        for threshold, quality in found.items():
            passing = threshold.passing(shared, covered, weights)
            hits = min(K, int(np.count_nonzero(passing & best)))
            quality.recall += share * (hits / right if right else 1.0)
            quality.empty += share * (not passing.any())
            quality.passing += share * float(passing.mean())
    return found


def measure_times(engine: Published, queries: Queries) -> dict[Threshold, float]:
    """Return the p50 of the call with each threshold in microseconds."""
    timed = [threshold for threshold in THRESHOLDS if threshold.kind != "weight"]
    times: Mapping[Threshold, list[int]] = {threshold: [] for threshold in timed}
    for turn in range(PASSES + 1):
        for i in range(len(queries)):
            for threshold in timed[(i + turn) % len(timed) :] + timed[: (i + turn) % len(timed)]:
                engine.options.update(threshold.options())
                asked = engine.prepare(*queries[i], K)
                start = time.perf_counter_ns()
                engine.query(asked, K)
                if turn:  # the first pass warms up
                    times[threshold].append(time.perf_counter_ns() - start)
    return {threshold: float(np.median(ns)) / 1e3 for threshold, ns in times.items()}


def print_quality(
    title: str, quality: Mapping[Threshold, Quality], times: Mapping[Threshold, float], queries: Queries
) -> None:
    """Print quality and cost of all thresholds."""
    table = Table(title=f"{title}; {np.median(np.diff(queries.offsets)):.0f} terms (median)", title_justify="left")
    for name in ("threshold", "recall@10", "no hits %", "documents passing %", "p50 us", "ratio to none"):
        table.add_column(name, justify="left" if name == "threshold" else "right")
    plain = times[THRESHOLDS[0]]
    for threshold, row in quality.items():
        cells = [f"{threshold.kind} {threshold.value:g}", f"{row.recall:.3f}", f"{100 * row.empty:.1f}"]
        cells.append(f"{100 * row.passing:.2f}")
        if threshold in times:
            cells += [f"{times[threshold]:.0f}", f"{times[threshold] / plain:.2f}"]
        table.add_row(*cells, *([] if threshold in times else ["-", "-"]))
    Console(width=120).print(table)


def main(argv: Sequence[str]) -> int:
    """Measure quality and cost of all thresholds for both lengths of queries."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with scifact, msmarco_5k and wikitext2")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="collections")
    asked = parser.parse_args(argv)
    values: dict[str, float] = {}
    for size, terms in SIZES.items():
        collection = make_passages(asked.data, asked.folder, terms)
        queries = collection.queries(terms)
        quality = measure_quality(collection, queries)
        with tempfile.TemporaryDirectory(dir=asked.folder) as scratch:
            Published.build(collection, Path(scratch), {})
            times = measure_times(Published(collection, Path(scratch), {"call": "vector"}), queries)
        print_quality(f"{len(collection):,} passages, queries {size}", quality, times, queries)
        values |= {f"{threshold.name}_{size}": round(row.recall, 4) for threshold, row in quality.items()}
    print_result(values)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
