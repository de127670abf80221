"""Tests of the index used for mining: stored texts, bit-identical scores, rejected settings."""

from pathlib import Path

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.training.negatives.mine import MinedIndex
from tests.indexing.corpus import STEP, Doc, make_index
from tests.indexing.remote import upload_current
from tests.training.negatives.conftest import QUERIES, TEXTS, settings


def test_hits_have_stored_text_and_search_score(mined_index: Path, opened: MinedIndex):
    searcher = Searcher.open(mined_index)
    texts = [query for query, _ in QUERIES]
    for answer, result in zip(opened.answer(texts), searcher.search_batch(texts, 12), strict=True):
        assert [(hit.doc_id, hit.score) for hit in answer.hits] == [(hit.doc_id, hit.score) for hit in result.hits]
        assert all(hit.text == TEXTS[hit.doc_id] for hit in answer.hits)
        assert answer.query.terms == tuple(term.term for term in result.query)


def test_document_score_is_bit_identical_to_search(opened: MinedIndex):
    for answer in opened.answer([query for query, _ in QUERIES]):
        for hit in answer.hits:
            assert opened.document(hit.doc_id, answer.query) == hit
        assert opened.document("absent", answer.query) is None


def test_text_outside_index_scores_like_an_indexed_document(opened: MinedIndex, corpus: dict[str, Doc]):
    answers = opened.answer([query for query, _ in QUERIES])
    texts = [TEXTS[doc_id] for _, doc_id in QUERIES]
    scores = opened.scores_of_texts(texts, [answer.query for answer in answers])
    for (_, doc_id), answer, score in zip(QUERIES, answers, scores, strict=True):
        document = opened.document(doc_id, answer.query)
        assert document is not None
        assert score == pytest.approx(document.score, rel=1e-5)
        weights = dict(zip(answer.query.ids.tolist(), answer.query.weights.tolist(), strict=True))
        plain = sum(weights.get(term, 0) * impact * STEP for term, impact in corpus[doc_id].terms.items())
        assert score == pytest.approx(plain, rel=1e-5)
    assert opened.scores_of_texts(["", " "], [answers[0].query] * 2) == [0.0, 0.0]


def test_unsupported_settings_raise_config_error(mined_index: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"^mine\.index: there is nothing"):
        MinedIndex(settings(tmp_path / "absent", "pairs"), {})
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"^mine\.index: .*; publish the index first"):
        MinedIndex(settings(tmp_path / "empty", "pairs"), {})
    with pytest.raises(ConfigError, match=r"^mine\.text_fields: .* does not store body; it stores: title, text"):
        MinedIndex(settings(mined_index, "pairs", text_fields=["body", "text"]), {})
    make_index(tmp_path / "nothing", {}, vocabulary_size=4)
    with pytest.raises(ConfigError, match=r"^mine\.index: .* holds no documents"):
        MinedIndex(settings(tmp_path / "nothing", "pairs"), {})


@pytest.mark.long
def test_remote_index_is_cached_in_the_node_cache(
    mined_index: Path, tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LSR_PROD_CACHE", str(tmp_path / "cache"))
    place = f"s3://lsr/{tmp_path.name}"
    upload_current(mined_index, Store(place, s3_options))
    remote = MinedIndex(settings(place, "pairs"), s3_options)
    local = MinedIndex(settings(mined_index, "pairs"), {})
    assert [one.hits for one in remote.answer(["lock"])] == [one.hits for one in local.answer(["lock"])]
    assert list((tmp_path / "cache" / "artifacts").glob("*/*/versions"))


def test_unplanned_index_version_raises_error(mined_index: Path):
    found = Searcher.open(mined_index).publication.version
    assert MinedIndex(settings(mined_index, "pairs"), {}, version=found).version == found
    with pytest.raises(ArtifactError, match="published again while it was mined"):
        MinedIndex(settings(mined_index, "pairs"), {}, version="0" * 64)


def test_scores_are_float32_values(opened: MinedIndex):
    (answer,) = opened.answer([QUERIES[0][0]])
    assert all(np.float32(hit.score) == hit.score for hit in answer.hits)
