"""Words of documents for BM25 postings, and the average length that a version keeps."""

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config import Deployment, IndexSettings
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.indexing import build_index
from lsr_prod.indexing.impacts.postings import WordSpill, average_length
from lsr_prod.indexing.index_plan import plan_index
from lsr_prod.inference.terms.analysis import words_of
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import canonical_json
from lsr_prod.storage.formats.term_weights import word_impacts
from tests.indexing.corpus import Doc, make_bundle, make_index, make_table
from tests.indexing.increments import Increment, change_table
from tests.indexing.publishing import publish

CORPUS = {f"d{i:03d}": Doc({1: 1}, "lock " * (i % 7) + f"number{i}") for i in range(300)}
MEAN = sum(len(words_of(doc.text)) for doc in CORPUS.values()) / len(CORPUS)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["lock", "Locks", "été", "z", "\U0001f600x"]), max_size=6)), st.data())
def test_word_spill_returns_words_by_ordinal(tmp_path_factory, lists, data):
    texts = list(map(" ".join, lists))
    half = data.draw(st.integers(0, len(texts)))
    spill = WordSpill(tmp_path_factory.mktemp("words") / "spill", 2.5)
    spill.add(texts[:half])
    spill.add(texts[half:])
    words = spill.finish()
    assert words.names == sorted({word for text in texts for word in words_of(text)})
    assert len(words.vectors) == len(texts)
    for ordinal, text in enumerate(texts):
        start, stop = words.vectors.offsets[ordinal : ordinal + 2]
        names = [words.names[i] for i in words.vectors.terms[start:stop]]
        counts = Counter(words_of(text))
        expected = word_impacts(np.array(list(counts.values())), np.full(len(counts), counts.total()), 2.5)
        assert dict(zip(names, words.vectors.impacts[start:stop], strict=True)) == dict(
            zip(counts, expected, strict=True)
        )


def test_word_spill_counts_long_documents_in_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("lsr_prod.indexing.impacts.postings._BATCH_WORDS", 4)
    monkeypatch.setattr("lsr_prod.indexing.impacts.postings._BATCH_DOCUMENTS", 3)
    texts = ["a b c d e f", "", "a", "b", "a a a", "", "", "", "c d e", "f"]
    spill = WordSpill(tmp_path / "spill", 2.0)
    spill.add(texts)
    found = spill.finish()
    assert found.vectors.lengths.tolist() == [6, 0, 1, 1, 1, 0, 0, 0, 3, 1]
    assert [found.names[i] for i in found.vectors.terms[:6]] == list("abcdef")


@pytest.fixture
def made(tmp_path):
    make_bundle(tmp_path / "bundle", ["t0", "t1"])
    make_table(tmp_path / "table", CORPUS, tmp_path / "bundle", buckets=4)
    return tmp_path


def deployment(root, **changes):
    given = {"table": str(root / "table"), "bundle": str(root / "bundle"), "output": str(root / "index")}
    return Deployment(index=IndexSettings(**{**given, "text_fields": ["text"], "bm25": True, **changes}))


def published(root, average):
    """Publish an index whose version records the given average length."""
    version = make_index(root / "index", CORPUS, bundle=root / "bundle", bm25=True)
    version = replace(version, average_length=average)
    Store(str(root / "index")).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()))
    publish(root / "index", version.sha)


def test_average_length_is_exact_or_estimated_from_whole_parts(made):
    table = open_table(Store(str(made / "table")))
    assert average_length(table, ["text"]) == pytest.approx(MEAN, abs=1e-3)
    assert average_length(table, ["title"]) == 1.0
    some = average_length(table, ["text"], sample=1)
    assert some != average_length(table, ["text"])
    assert some == pytest.approx(MEAN, rel=0.2)
    next((made / "table").rglob("part-*.parquet")).write_bytes(b"")
    with pytest.raises(ArtifactError, match="encode the table again"):
        average_length(table, ["text"])


def test_plan_keeps_the_published_average_length_unless_it_drifted(made):
    assert plan_index(deployment(made, bm25=False)).layout.average_length is None
    measured = plan_index(deployment(made))
    assert measured.layout.average_length == pytest.approx(MEAN, abs=1e-3)
    assert measured.shards[0].sha != plan_index(deployment(made, bm25=False)).shards[0].sha
    published(made, MEAN * 1.08)
    assert plan_index(deployment(made)).layout.average_length == MEAN * 1.08
    published(made, MEAN * 1.3)
    assert plan_index(deployment(made)).layout.average_length == measured.layout.average_length
    published(made, None)
    assert plan_index(deployment(made)).layout.average_length == measured.layout.average_length
    shutil.rmtree(made / "index" / "versions")
    assert plan_index(deployment(made)).layout.average_length == measured.layout.average_length


def test_another_analyzer_builds_all_shards_again(made):
    build_index(deployment(made))
    changed = deployment(made, analyzer="simple")
    assert plan_index(changed).layout.average_length == pytest.approx(MEAN, abs=1e-3)
    assert build_index(changed).mode == "full"
    searcher = Searcher.open(made / "index")
    assert searcher.version.analyzer == "simple"
    assert searcher.bm25("lock").hits
    assert not searcher.bm25("locks").hits
    assert build_index(changed).mode == "unchanged"


def test_plan_rejects_bm25_without_text_fields(made):
    with pytest.raises(ConfigError, match=r"index\.bm25.*index\.text_fields"):
        plan_index(deployment(made, text_fields=[]))


def test_manifest_counts_words_as_impact_bytes(made):
    sizes = [
        make_index(made / name, CORPUS, bundle=made / "bundle", bm25=bm25).shards[0]
        for name, bm25 in (("with", True), ("without", False))
    ]
    assert sizes[0].bytes_by_part["impacts"] > sizes[1].bytes_by_part["impacts"] + 6 * len(CORPUS)
    assert sizes[0].bytes_by_part["forward"] == sizes[1].bytes_by_part["forward"]
    assert sizes[0].postings == sizes[1].postings == len(CORPUS)
    names = {file.path for file in sizes[0].files} - {file.path for file in sizes[1].files}
    assert {name for name in names if name.startswith("impacts/")} == {
        "impacts/word_offsets.npy",
        "impacts/word_bytes.npy",
    }


def test_delta_shard_weighs_words_with_the_average_length_of_the_base(made):
    """Superseded documents count in document frequencies until all shards are built again."""
    build_index(deployment(made))
    before = Searcher.open(made / "index").version
    change_table(made, Increment({"new": Doc({1: 2}, "lock fox"), "d001": Doc({1: 1}, "fox")}, ["d002"]))
    assert build_index(deployment(made)).mode == "delta"
    searcher = Searcher.open(made / "index")
    assert searcher.version.average_length == before.average_length
    foxes = searcher.bm25("fox number2")
    assert [hit.doc_id for hit in foxes.hits] == ["d001", "new"]
    weights = {term.term: term.weight for term in foxes.query}
    assert weights == pytest.approx({"fox": np.log1p((302 - 1.5) / 2.5), "number2": np.log1p((302 - 0.5) / 1.5)})
    assert searcher.bm25("lock", 400, count=True).matched == sum(i % 7 > 0 for i in range(300)) - 1

    change_table(made, Increment({f"long{i}": Doc({1: 1}, "fox " * 99) for i in range(20)}))
    drifted = build_index(deployment(made))
    assert drifted.mode == "full"
    assert Searcher.open(made / "index").version.average_length > 2 * before.average_length
