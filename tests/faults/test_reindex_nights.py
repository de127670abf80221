"""Nightly index jobs that are killed, started twice and followed by takedowns; the index is checked after each.

Every night 1 % of the documents are added, 1 % changed and 1 % removed. Contents and search results are compared with
an index that is built completely from the same table, the files with an index of undisturbed nights.
"""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.indexing import build_index, collect_garbage, delete_documents
from lsr_prod.search import Searcher
from lsr_prod.storage.publications import current_publication
from tests.faults.reindex_night import SETTINGS
from tests.indexing.contents import current, dump, takedowns
from tests.indexing.increments import VOCABULARY, change_table, deployment, make_world, random_doc, random_increment

ROOT = Path(__file__).parents[2]
SEED = 20261121


@pytest.mark.long
@pytest.mark.parametrize(("documents", "nights"), [(500, 3), pytest.param(10_000, 5, marks=pytest.mark.slow)])
def test_disturbed_nights_give_the_index_of_clean_runs(tmp_path: Path, documents: int, nights: int) -> None:
    dice = random.Random(SEED)
    corpus = {f"doc{i:05d}": random_doc(dice) for i in range(documents)}
    build_index(make_world(tmp_path, corpus))
    for output in ("index", "clean"):
        build_index(deployment(tmp_path, output, **SETTINGS))
    for night in range(nights):
        change = random_increment(dice, corpus, 0.01, f"n{night}-")
        change_table(tmp_path, change)
        corpus = change.after(corpus)
        clean = _finish(_start(tmp_path, "clean"))
        assert clean is not None
        # Killed at a seeded moment: before the first write, in the shard, or near the publication.
        assert _finish(_start(tmp_path, "index", kill=1 + int(clean["calls"] * dice.uniform(0.02, 0.98)))) is None
        runs = [_start(tmp_path, "index") for _ in range(2 if night == 2 else 1)]
        summaries = [_finish(run) for run in runs]
        assert all(summaries)
        print(
            f"night {night}: {clean['mode']}, {clean['upserts']} upserts, {clean['deletes']} deletes, "
            f"{clean['documents_rebuilt']} documents rebuilt, {clean['bytes_written']:,} bytes of "
            f"{clean['bytes_per_doc'] * clean['documents']:,.0f}"
        )
        _compare(tmp_path, corpus, night)
        if night == 1:
            gone = dice.sample(sorted(corpus), 5)
            for output in ("index", "clean"):
                delete_documents(tmp_path / output, gone)
    collect_garbage(tmp_path / "index", keep=1, age_s=0.0)
    assert dump(tmp_path / "index") == dump(tmp_path / "clean")


def _start(root: Path, output: str, kill: int = 0) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.faults.reindex_night", str(root), output, str(kill)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _finish(run: "subprocess.Popen[str]") -> dict[str, Any] | None:
    """Return its output, or None if it was killed."""
    out, _ = run.communicate(timeout=300)
    assert run.returncode in (0, -9)
    return None if run.returncode else json.loads(out)


def _compare(root: Path, corpus: dict, night: int) -> None:
    mine, clean = current(root / "index"), current(root / "clean")
    assert [shard.sha for shard in mine.shards] == [shard.sha for shard in clean.shards]
    assert (mine.tombstones, mine.takedowns) == (clean.tombstones, clean.takedowns)
    assert mine.table_version == clean.table_version
    assert current_publication(root / "index").number == current_publication(root / "clean").number
    gone = takedowns(root / "index")
    build_index(deployment(root, f"whole{night}"))
    if set(gone) & set(corpus):
        delete_documents(root / f"whole{night}", gone)
    found = dump(root / "index")
    assert set(found) == set(corpus) - set(gone)
    assert found == dump(root / f"whole{night}")
    _search(root / "index", root / f"whole{night}", night)


def _search(index: Path, whole: Path, night: int) -> None:
    dice = random.Random(night)
    one, other = Searcher.open(index, verify=True), Searcher.open(whole)
    assert one.documents == other.documents
    for _ in range(12):
        vector = {dice.randrange(VOCABULARY): dice.uniform(0.1, 3.0) for _ in range(dice.randint(1, 8))}
        for limits in ({}, {"overlap_threshold": 0.4}, {"overlap_threshold": 1.0}, {"min_terms": 2}):
            for k in (10, 10_000):
                results = [searcher.search_vector(vector, k, **limits) for searcher in (one, other)]
                hits = [[(hit.doc_id, hit.score, hit.overlap) for hit in result.hits] for result in results]
                assert hits[0] == hits[1]
