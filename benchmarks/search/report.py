"""Tables and figures of the race of search engines, and what this machine's memory gives one thread.

The latter is the floor under the time of a query that reads so many bytes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.search.contestants import ARRAYS, PUBLIC, SINDI_EXACT, TWO, is_ours
from benchmarks.search.data import KS
from benchmarks.search.race import BANDS, ENOUGH, Row, percentiles

__all__ = ["Limits", "measure_limits", "print_bands", "print_limits", "print_rows", "results"]

FAMILIES = ("ours", "sindi", "seismic", "bmp", "qdrant-edge", "sqlite-sparse", "csc", "scipy", "tantivy or")
CACHED = 1 << 14  # sums of 16 bits that stay in the first-level cache


@dataclass(frozen=True, slots=True)
class Limits:
    """One thread's best.

    Attributes:
        stream_gb_s: reading memory in order, 1e9 bytes a second.
        gather_ns: one read at a random place of an array far larger than the caches.
        scatter_ns: adding one product of 16 bits to a random place of 16,384 cached sums, as a posting does.
    """

    stream_gb_s: float
    gather_ns: float
    scatter_ns: float

    def stream_us(self, count: float) -> float:
        """Microseconds to read ``count`` bytes in order."""
        return count / self.stream_gb_s / 1e3


def measure_limits(megabytes: int = 512) -> Limits:
    """Best of five of each probe over an array of that size."""
    generator = np.random.default_rng(1)
    words = generator.integers(0, 1 << 62, megabytes << 17)
    places = generator.integers(0, len(words), 1 << 21)
    ids = generator.integers(0, CACHED, 1 << 20).astype(np.uint16)
    impacts = generator.integers(1, 256, 1 << 20).astype(np.uint8)
    sums = np.zeros(CACHED, np.uint16)
    stream = _best(lambda: _read_all(words))
    gather = _best(lambda: _read_places(words, places))
    scatter = _best(lambda: _add_postings(ids, impacts, np.uint16(128), sums))
    return Limits(words.nbytes / stream / 1e9, gather / len(places) * 1e9, scatter / len(ids) * 1e9)


def _best(probe: Callable[[], Any], runs: int = 5) -> float:
    """Seconds of the fastest run; the first compiles."""
    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        probe()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])


@numba.njit(nogil=True)
def _read_all(words: Any) -> int:
    total = 0
    for i in range(len(words)):
        total ^= words[i]
    return total


@numba.njit(nogil=True)
def _read_places(words: Any, places: Any) -> int:
    total = 0
    for i in range(len(places)):
        total ^= words[places[i]]
    return total


@numba.njit(nogil=True)
def _add_postings(ids: Any, impacts: Any, weight: Any, sums: Any) -> None:
    for i in range(len(ids)):
        sums[ids[i]] += (weight * impacts[i]) >> 8


def print_rows(collection: str, rows: Sequence[Row]) -> None:
    """Print the measurements of one collection as a table."""
    table = Table(title=f"{collection}: microseconds, one thread", title_justify="left")
    names = ["engine", "build s", "bytes/doc", "open ms", "RSS MB"]
    for k in KS:
        names += [f"k={k} p50", "p95", "p99", f"recall@{k}"]
    for name in [*names, "q/s", "2 threads", "x", "batch q/s", "x"]:
        table.add_column(name, justify="left" if name == "engine" else "right", no_wrap=True)
    for row in rows:
        cells = [row.contestant.name, f"{row.build_s:.1f}", sizes(row)]
        cells += [f"{row.open_ms:.1f}", f"{row.rss / 1e6:,.0f}"]
        for k in KS:
            if k in row.times:
                counted = row.contestant.options.get("mode") == "two"
                cells += [f"{value:,.0f}" for value in percentiles(row.times[k])]
                cells.append("-" if counted else f"{row.recall[k]:.4f}")
            else:
                cells += [""] * 4
        cells += _rates(row.qps) + _rates(row.batch_qps)[::2]
        table.add_row(*cells)
    Console(width=220).print(table)


def _rates(qps: Mapping[int, float]) -> list[str]:
    return [f"{qps[1]:,.0f}", f"{qps[2]:,.0f}", f"{qps[2] / qps[1]:.2f}"] if qps else [""] * 3


def sizes(row: Row) -> str:
    """Format bytes per document: of the parts that a query reads to match and to score, and of all files."""
    parts = [size / row.documents for size in row.sizes.values()]
    read = [row.sizes[name] / row.documents for name in ("matching", "forward") if name in row.sizes] or parts[:1]
    total = f" of {sum(parts):.0f}" if len(parts) > 1 else ""
    return " + ".join(f"{size:.1f}" for size in read) + total


def print_bands(collection: str, rows: Sequence[Row]) -> None:
    """Print the fastest row of each engine that reaches each recall; ``search_arrays`` is left out."""
    names = [f"recall >= {band:g}" for band in BANDS]
    table = Table(title=f"{collection}: p50 us (p95, recall) by recall, public calls", title_justify="left")
    for name in ("k", "engine", *names):
        table.add_column(name, justify="left" if name == "engine" else "right", no_wrap=True)
    for k in KS:
        for family in FAMILIES:
            mine = [r for r in rows if r.contestant.name.startswith(family) and k in r.times]
            mine = [row for row in mine if row.contestant.name != ARRAYS]
            cells = []
            for band in BANDS:
                good = [row for row in mine if row.recall[k] >= band]
                best = min(good, key=lambda row: row.p50(k), default=None)
                cells.append("-" if best is None else f"{best.p50(k):,.0f} ({best.p95(k):,.0f}, {best.recall[k]:.4f})")
            if mine:
                table.add_row(str(k), family, *cells)
    Console(width=220).print(table)


def print_limits(collection: str, rows: Sequence[Row], limits: Limits) -> None:
    """Compare the p50 of engines that report the bytes they read with the time at memory bandwidth."""
    table = Table(title=f"{collection}, k=10: distance to the limit, medians over queries", title_justify="left")
    for name in ("engine", "postings", "KB", "at memory speed us", "p50 us", "p50 / that", "ns a posting"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for row in rows:
        if row.touched_bytes and row.touched_postings and 10 in row.times:
            floor = limits.stream_us(median(row.touched_bytes))
            postings = median(row.touched_postings)
            cells = [
                f"{postings:,.0f}",
                f"{median(row.touched_bytes) / 1e3:,.0f}",
                f"{floor:.1f}",
                f"{row.p50(10):.0f}",
            ]
            table.add_row(
                row.contestant.name, *cells, f"{row.p50(10) / floor:.1f}", f"{1e3 * row.p50(10) / max(1, postings):.2f}"
            )
    Console(width=220).print(table)


def fastest(rows: Mapping[str, Row], k: int, good: Callable[[str], bool]) -> Row | None:
    """Return the row with the lowest p50 at sufficient recall, or with the best recall if none suffices."""
    mine = [row for name, row in rows.items() if good(name) and k in row.times]
    return min(
        mine,
        key=lambda row: (row.recall[k] < ENOUGH, row.p50(k) if row.recall[k] >= ENOUGH else -row.recall[k]),
        default=None,
    )


def results(found: Mapping[str, Mapping[str, Row]]) -> dict[str, Any]:
    """Return the values of the RESULT line; None where an engine or a collection was left out."""
    values: dict[str, Any] = {}
    main = found.get("topics20", {})
    for k in KS:
        values[f"public_p50_ratio_seismic_k{k}"] = ratio(_public(main, k), _seismic(main, k), k)
    real = [rows for name, rows in found.items() if name in ("splade7", "splade25")]
    for name, mine in (("public", PUBLIC), ("arrays", ARRAYS)):
        for what, share in (("p50", Row.p50), ("p95", Row.p95)):
            worst = [ratio(rows.get(mine), rows.get(SINDI_EXACT), 10, share) for rows in real]
            values[f"{name}_{what}_ratio_sindi_real"] = max((w for w in worst if w is not None), default=None)
    small = found.get("small", {}).get(ARRAYS)
    values["fixed_us"] = None if small is None else round(small.p50(10), 1)
    values["threads_2"] = _threads(main.get(ARRAYS))
    values["bytes_per_doc"] = per_document(main, PUBLIC)
    mine, seismic = main.get(PUBLIC), _seismic(main, 10)
    values["build_ratio_seismic_whole"] = mine and seismic and round(mine.build_s / seismic.build_s, 4)
    best = _public(main, 10)
    values["recall10"] = None if best is None else round(best.recall[10], 4)
    for name, rows in found.items():
        values |= _ratios_of(name, rows)
    return values


def _ratios_of(name: str, rows: Mapping[str, Row]) -> dict[str, Any]:
    """Return the ratios of one collection to single peers, exact public call against exact peer."""
    values: dict[str, Any] = {
        f"tantivy_msm_p50_ratio_{name}": ratio(rows.get(TWO), rows.get("tantivy >= 2, count"), 10),
        f"tantivy_msm_scored_p50_ratio_{name}": ratio(rows.get(TWO), rows.get("tantivy >= 2, scored"), 10),
    }
    for k in KS:
        values[f"public_p50_ratio_sindi_{name}_k{k}"] = ratio(rows.get(PUBLIC), rows.get(SINDI_EXACT), k)
        values[f"arrays_p50_ratio_sindi_{name}_k{k}"] = ratio(rows.get(ARRAYS), rows.get(SINDI_EXACT), k)
        values[f"public_p50_ratio_seismic_{name}_k{k}"] = ratio(_public(rows, k), _seismic(rows, k), k)
    return {key: value for key, value in values.items() if value is not None}


def _public(rows: Mapping[str, Row], k: int) -> Row | None:
    return fastest(rows, k, lambda name: is_ours(name) and name != ARRAYS)


def _seismic(rows: Mapping[str, Row], k: int) -> Row | None:
    return fastest(rows, k, lambda name: name.startswith("seismic"))


def _threads(row: Row | None) -> float | None:
    """Return the rate of batches with two threads divided by that with one."""
    return None if row is None or not row.batch_qps else round(row.batch_qps[2] / row.batch_qps[1], 2)


def ratio(mine: Row | None, theirs: Row | None, k: int, share: Callable[[Row, int], float] = Row.p50) -> float | None:
    """Return our time divided by theirs, or None if either is missing."""
    return None if mine is None or theirs is None else round(share(mine, k) / share(theirs, k), 4)


def per_document(rows: Mapping[str, Row], name: str) -> float | None:
    """Return the bytes of the matching arrays per document."""
    if name not in rows:
        return None
    return round(rows[name].sizes["matching"] / rows[name].documents, 1)
