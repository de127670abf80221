"""First-stage search through public calls: our index against peers, on the same vectors.

    python -m benchmarks.search.against_peers [--quick] [--peer-python PYTHON] [--splade QUERIES.jsonl.gz]
                                              [--passages DATA]

Our index is a published one. The row "ours, search_vector" times the public call, with hits as Python objects, from a
dict of weights. The row "ours, search_arrays" times the call that takes and returns arrays, one query per call: it is
close to the kernel alone and is never compared with a peer under a name that begins with ``public``. SINDI returns
arrays from either, the other peers Python objects.

Collections: ``benchmarks.search.data``; ``small``, 4,000 documents, where fixed costs decide; and ``passages7`` and
``passages25``, some 25,000 real passages and queries that a real model encoded (``benchmarks.search.passages``).
Each engine runs in its own process with one thread. Queries are shuffled and sent in slices of 64 to each engine in
turn, so that noise of the machine affects all engines equally; the first slice is a warm-up. Preparing query objects
and decoding answers is not timed. Recall is measured against exact scores without any threshold; documents that tie
with the k-th count as relevant. SINDI, Seismic and our own settings are tuned on the same queries that are then timed,
for the lowest p50 with recall of at least .90, .95, .99 and .997. Builds are CPU seconds of one thread, from the types
of each engine, which are made before the clock starts; ours of a whole published index. "bmp exact, sorted" receives
the documents in the order of their true topics.

Prints tables and ``RESULT {json}``. Ratios are ours / theirs, lower is better:
    public_p50_ratio_seismic_k10, _k100   topics20; the fastest rows with recall >= .997, ``search_arrays`` left out
    public_p50_ratio_sindi_real           ``search_vector`` against exact SINDI, k=10: the worse of splade7 and
                                          splade25; ``public_p95_``, ``arrays_p50_`` and ``arrays_p95_`` likewise
    fixed_us                              p50 of ``search_arrays`` over 4,000 documents, k=10
    threads_2                             rate of ``search_arrays`` in batches, two threads / one
    bytes_per_doc                         matching arrays of topics20
    build_ratio_seismic_whole             CPU seconds of the published index / of Seismic's index, topics20
    recall10                              recall of our row in ``public_p50_ratio_seismic_k10``
    tantivy_msm_p50_ratio_*               two terms of the query, against Tantivy counting the matches; ``_scored``:
                                          against Tantivy scoring them too
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.search.contestants import LOCAL, PEERS, ours
from benchmarks.search.data import KS, Collection, default_specs, make
from benchmarks.search.passages import make_passages
from benchmarks.search.race import Row, race
from benchmarks.search.report import Limits, measure_limits, print_bands, print_limits, print_rows, results
from lsr_prod.jobs.terminal.shell import print_result
from lsr_prod.jobs.terminal.tables import print_table

SMALL = 4_000  # documents
PASSAGES = (7, 25)  # terms per query


def main(argv: Sequence[str]) -> int:
    """Measure all engines on every collection and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="collections and stored indexes")
    parser.add_argument("--documents", type=int, default=None, help="documents per collection (default: one million)")
    parser.add_argument("--splade", type=Path, default=None, help="real query vectors, .jsonl.gz")
    parser.add_argument("--passages", type=Path, default=None, help="folder with scifact, msmarco_5k and wikitext2")
    parser.add_argument("--peer-python", default=None, help="python of the peers' environment")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS), help="peers (default: all)")
    parser.add_argument("--collections", nargs="+", default=None, help="names of the collections to run (default: all)")
    parser.add_argument("--passes", type=int, default=None, help="number of timed runs of each query (default: 3)")
    parser.add_argument("--seconds", type=float, default=None, help="duration of a throughput measurement (default: 1)")
    parser.add_argument("--quick", action="store_true", help="20,000 documents, one pass, few settings to tune over")
    asked = parser.parse_args(argv)
    defaults = {"documents": 20_000, "passes": 1, "seconds": 0.1} if asked.quick else {"passes": 3, "seconds": 1.0}
    for name, value in defaults.items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    specs = default_specs(asked.splade, asked.documents)
    specs.append(replace(specs[2 if asked.splade else 0], name="small", documents=SMALL))
    if asked.splade is None:
        print("no --splade: the collections made from real query vectors are skipped")
    if asked.peer_python is None:
        print("no --peer-python: the peers in an environment of their own are skipped")
    limits = measure_limits(64 if asked.quick else 512)
    print_table(
        "one thread of this machine",
        {"read in order, GB/s": limits.stream_gb_s, "random read, ns": limits.gather_ns, "add, ns": limits.scatter_ns},
    )
    found: dict[str, dict[str, Row]] = {}
    asked.made = set[Path]()  # collections of equal documents share indexes
    for spec in specs:
        if asked.collections is None or spec.name in asked.collections:
            found[spec.name] = run(spec.name, spec.query_terms, make(spec, asked.folder), asked, limits)
    for terms in PASSAGES if asked.passages is not None else ():
        name = f"passages{terms}"
        if asked.collections is None or name in asked.collections:
            collection = make_passages(asked.passages, asked.folder, terms)
            found[name] = run(name, terms, collection, asked, limits)
    print_result(results(found))
    return 0


def run(
    name: str, query_terms: int, collection: Collection, asked: argparse.Namespace, limits: Limits
) -> dict[str, Row]:
    """Tune the engines that have settings on the collection, then measure all contestants and print the tables."""
    share = 100 * collection.truth(query_terms, KS)[:, -1].mean() / len(collection)
    print(
        f"\n{name}: {len(collection):,} documents x {collection.terms.shape[1]} terms, {query_terms}-term queries, "
        f"documents {collection.digest[:12]}; {share:.2f} % of them share two or more terms with a query"
    )
    contestants, made = ours(), asked.made
    for peer in asked.peers:
        if peer in LOCAL or asked.peer_python is not None:
            arguments = (asked.peer_python, collection, query_terms, asked.folder)
            contestants += PEERS[peer](*arguments, made=made, quick=asked.quick)
    rows = race(
        contestants, collection, query_terms, asked.folder, passes=asked.passes, seconds=asked.seconds, made=made
    )
    print_rows(name, rows)
    print_bands(name, rows)
    print_limits(name, rows, limits)
    return {row.contestant.name: row for row in rows}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
