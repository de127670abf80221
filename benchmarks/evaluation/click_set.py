"""Evaluation sets from a large click log: are thirds equal and the files free of leaks, and what does a build cost?

    python -m benchmarks.evaluation.click_set [--rows 1000000] [--seed 1] [--folder FOLDER]

Writes a synthetic log (Zipfian topics, queries and documents, home pages that everybody clicks, spellings, 0.1 % bad
rows) and runs ``lsr-prod click-set`` three times, each in a process of its own: twice on the log, and once on the same
rows in another order. Checks, from the files:

- rows in == used + skipped + quarantined, and the quarantined rows are the bad ones;
- the thirds of each set have the same number of queries, those of the candidates differ by at most one, and no query
  of a lower third has a higher matched-term ratio than one of a higher third;
- the ratio of every query, recomputed from the texts of its positives, and of every negative;
- no leak (``find_leaks``);
- the files of all builds are equal, byte by byte.

``RESULT``: rows, seconds and peak memory (MB) of the first build, CPU seconds, queries per third, leaks, equal bytes.
Exit code 1 if a check fails.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation.synthetic_clicks import write_log
from lsr_prod.inference.terms.analysis import distinct_words
from lsr_prod.storage.formats.digests import digest_folder
from lsr_prod_contrib.click_sets import find_leaks

SETS = {"test": "test", "validation": "dev"}


@dataclass(frozen=True, slots=True)
class Build:
    """One run of the job."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    result: dict[str, Any]
    files: dict[str, str]


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="folder for logs and sets; default: temporary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        made = write_log(folder / "log.parquet", options.rows, options.seed)
        write_log(folder / "shuffled.parquet", options.rows, options.seed, shuffled=7)
        builds = [
            build(folder / log, folder / name)
            for log, name in (("log.parquet", "a"), ("log.parquet", "b"), ("shuffled.parquet", "c"))
        ]
        first = builds[0]
        problems = [*check_rows(first.result, made.bad), *check_sets(folder / "a")]
        leaks = find_leaks(folder / "a").total()
    equal = all(one.files == first.files for one in builds)
    thirds = {name: [first.result[f"{name}.{third}"] for third in ("low", "middle", "high")] for name in SETS}
    for name in sorted(first.result):
        print(f"{name:32} {first.result[name]}")
    for one in builds:
        print(f"{one.seconds:8.1f} s  {one.cpu_seconds:8.1f} CPU s  {one.peak_mb:8.0f} MB")
    for problem in problems:
        print(f"PROBLEM {problem}")
    passed = not problems and not leaks and equal
    values = {
        "rows": made.rows,
        "seconds": round(first.seconds, 1),
        "cpu_seconds": round(first.cpu_seconds, 1),
        "peak_mb": round(first.peak_mb),
        "thirds": thirds,
        "problems": len(problems),
        "leaks": leaks,
        "equal_bytes": equal,
        "passed": passed,
    }
    print(f"RESULT {json.dumps(values)}")
    return 0 if passed else 1


def build(log: Path, output: Path) -> Build:
    """Run the job in a process of its own."""
    arguments = ["--click_set.paths", json.dumps([str(log)]), "--click_set.output", str(output)]
    began = time.monotonic()
    command = [sys.executable, "-m", "lsr_prod", "click-set", *arguments]
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(command, stdout=out) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        out.seek(0)
        lines = out.read().splitlines()
    if process.returncode:
        raise SystemExit(f"the job failed with exit code {process.returncode}")
    result = json.loads(next(line for line in lines if line.startswith("RESULT "))[len("RESULT ") :])
    files = {file.path: file.sha256 for file in digest_folder(output) if file.path != "_plan.json"}
    return Build(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, result, files)


def check_rows(result: dict[str, Any], bad: int) -> Iterator[str]:
    """Yield what is wrong with the accounts of the rows."""
    skipped = sum(number for name, number in result.items() if name.startswith("skipped."))
    if result["rows"] != result["used"] + skipped + result["quarantined"]:
        yield "rows were lost"
    if result["quarantined"] != bad:
        yield f"{result['quarantined']} rows are quarantined, {bad} are bad"


def check_sets(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the sets, from their files."""
    manifest = json.loads((folder / "_manifest.json").read_bytes())
    for name, split in SETS.items():
        sizes = [one["candidates"] for one in manifest["counts"][name]["thirds"].values()]
        if max(sizes) - min(sizes) > 1:
            yield f"{name}: the thirds of the candidates have {sizes} queries"
        queries = [json.loads(line) for line in (folder / name / "queries.jsonl").read_text().splitlines()]
        number = Counter(query["metadata"]["third"] for query in queries)
        if len(set(number.values())) != 1 or len(number) != 3:
            yield f"{name}: thirds have {dict(number)} queries"
        ratios = defaultdict(list)
        for query in queries:
            ratios[query["metadata"]["third"]].append(query["metadata"]["matched_term_ratio"])
        if max(ratios["low"]) > min(ratios["middle"]) or max(ratios["middle"]) > min(ratios["high"]):
            yield f"{name}: thirds overlap"
        yield from check_ratios(folder / name, split, queries)


def check_ratios(folder: Path, split: str, queries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield ratios that differ from those of the texts."""
    rows = map(json.loads, (folder / "corpus.jsonl").open())
    words = {row["_id"]: set(distinct_words(f"{row['title']} {row['text']}")) for row in rows}
    best: defaultdict[str, float] = defaultdict(float)
    asked = {query["_id"]: set(distinct_words(query["text"])) for query in queries}
    for query, document, _ in tsv(folder / "qrels" / f"{split}.tsv"):
        best[query] = max(best[query], len(asked[query] & words[document]) / len(asked[query]))
    for query in queries:
        if best[query["_id"]] != query["metadata"]["matched_term_ratio"]:
            yield f"{folder.name}: the ratio of {query['text']!r} is {best[query['_id']]}"
    for query, document, ratio in tsv(folder / "negatives.tsv"):
        found = len(asked[query] & words[document]) / len(asked[query])
        if f"{found:.6f}" != ratio or found <= 0.5:
            yield f"{folder.name}: the negative {document} of {query} has the ratio {found}"


def tsv(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a file without its header."""
    with path.open(newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        next(rows)
        yield from rows


if __name__ == "__main__":
    raise SystemExit(main())
