"""From text to hits: encode, match and merge, and fetch, warm, across version swaps, and on cold pages.

    python -m benchmarks.search.text INDEX QUERIES.jsonl

One thread, k=10, threshold 0.2, stored fields fetched. The index is copied, so that versions can be published: a
takedown and its end, in turns, by another thread that refreshes the same Searcher while queries run. Cold pages: the
copy's files are dropped from the page cache, the index is opened anew, and every query is asked once; encoding stays
warm. Prints a table and ``RESULT {json}``.
"""

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.search.race import percentiles
from lsr_prod import Searcher, SearchResult
from lsr_prod.indexing import delete_documents, restore_documents
from lsr_prod.jobs.terminal.shell import print_result

WARM, SWAPS = 1000, 10


def main(argv: Sequence[str]) -> int:
    """Measure all three and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path, help="folder of a published index")
    parser.add_argument("queries", type=Path, help="JSON lines with text")
    asked = parser.parse_args(argv)
    source: Path = asked.index
    with asked.queries.open(encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    with tempfile.TemporaryDirectory(dir=source.parent) as scratch:
        index = Path(scratch) / "index"
        shutil.copytree(source, index)
        searcher = Searcher.open(index)
        ask(searcher, texts[:50])
        parts = {"warm": ask(searcher, list(islice(cycle(texts), WARM)))}
        parts[f"{SWAPS} version swaps"] = ask_while_swapping(searcher, index, texts)
        encoder = searcher._encoder  # an opened model is no page of the index
        del searcher
        drop_pages(index)
        cold = Searcher.open(index)
        cold._encoder = encoder
        parts["cold pages"] = ask(cold, texts[:200])
    print_parts(parts)
    print_result({name.replace(" ", "_"): summary(results) for name, results in parts.items()})
    return 0


def ask(searcher: Searcher, texts: Sequence[str]) -> list[tuple[float, SearchResult]]:
    """Milliseconds, and the answer."""
    found = []
    fields = searcher.version.stored_fields
    for text in texts:
        start = time.perf_counter()
        result = searcher.search(text, 10, overlap_threshold=0.2, fields=fields)
        found.append(((time.perf_counter() - start) * 1e3, result))
    return found


def ask_while_swapping(searcher: Searcher, index: Path, texts: Sequence[str]) -> list[tuple[float, SearchResult]]:
    """Queries until another thread has published and opened ``SWAPS`` versions."""
    victim = searcher.search(texts[0], 1).hits[0].doc_id
    done = threading.Event()

    def swap() -> None:
        for turn in range(SWAPS):
            (restore_documents if turn % 2 else delete_documents)(index, [victim])
            assert searcher.refresh()
            time.sleep(0.1)
        done.set()

    thread = threading.Thread(target=swap)
    thread.start()
    found = []
    for text in cycle(texts):
        found += ask(searcher, [text])
        if done.is_set():
            break
    thread.join()
    assert len({result.version for _, result in found}) > 1
    return found


def drop_pages(folder: Path) -> None:
    """Have the system forget what it read of the files; nothing maps them any more."""
    gc.collect()
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def summary(results: Sequence[tuple[float, SearchResult]]) -> dict[str, float]:
    """p50 and p99 of the whole, and p50 of its parts, milliseconds."""
    p50, _, p99 = percentiles([ms for ms, _ in results])
    stages = {
        stage: percentiles([getattr(result, f"{stage}_ms") for _, result in results])
        for stage in ("encode", "match", "fetch")
    }
    found = {"queries": len(results), "p50_ms": p50, "p99_ms": p99}
    found |= {f"{stage}_p50_ms": values[0] for stage, values in stages.items()}
    found |= {f"{stage}_p99_ms": values[2] for stage, values in stages.items()}
    return {name: round(value, 3) for name, value in found.items()}


def print_parts(parts: dict[str, list[tuple[float, SearchResult]]]) -> None:
    """The table."""
    table = Table(title="text to hits, milliseconds, p50 / p99", title_justify="left")
    for name in ("", "queries", "all", "encode", "match + merge", "fetch"):
        table.add_column(name, justify="right" if name else "left")
    for name, results in parts.items():
        values = summary(results)
        cells = [f"{values['p50_ms']:.2f} / {values['p99_ms']:.2f}"]
        cells += [f"{values[f'{s}_p50_ms']:.3f} / {values[f'{s}_p99_ms']:.3f}" for s in ("encode", "match", "fetch")]
        table.add_row(name, str(values["queries"]), *cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
