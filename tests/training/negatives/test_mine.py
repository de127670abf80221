"""Tests of mined rows: hand-made cases, and brute force over the whole corpus."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.config import TeacherModelSettings
from lsr_prod.corpus.source_rows import BadRow
from lsr_prod.inference import BundleEncoder
from lsr_prod.training.negatives.inputs import KnownPositives, Pair, PairSurvey, TeacherScores
from lsr_prod.training.negatives.mine import MinedIndex, MinedRow, Miner, TeacherModel
from lsr_prod.training.negatives.rules import SKETCH_SIZE, Fingerprint, id_key, pair_key, text_key
from lsr_prod.training.scoring.teacher import open_teacher
from tests.indexing.corpus import STEP, Doc
from tests.quick import first_quick
from tests.training.negatives.conftest import QUERIES, TEXTS, settings

NOTHING = KnownPositives.of([])
Mined = tuple[MinedRow | BadRow, Counter[str]]


def mine(
    index: MinedIndex,
    pairs: list[Pair],
    *,
    known: KnownPositives = NOTHING,
    scores_of: TeacherScores | TeacherModel | None = None,
    **changes: Any,
) -> list[Mined]:
    section = settings("index", "pairs", **changes)
    return list(Miner(index, section, known, scores_of).mine(pairs))


def row_of(mined: list[Mined]) -> MinedRow:
    ((row, _),) = mined
    assert isinstance(row, MinedRow), row
    return row


def bad_of(mined: list[Mined]) -> BadRow:
    ((row, _),) = mined
    assert isinstance(row, BadRow), row
    return row


def names(row: MinedRow) -> list[str]:
    return [hit.doc_id for hit in row.negatives]


def brute_force(bundle: Path, corpus: dict[str, Doc], query: str) -> dict[str, float]:
    """Return the float64 score of every document that shares a term with the query."""
    terms, weights = BundleEncoder(bundle).encode([query], kind="query").row(0)
    asked = dict(zip(terms.tolist(), weights.tolist(), strict=True))
    scores = {i: sum(asked.get(t, 0) * w * STEP for t, w in doc.terms.items()) for i, doc in corpus.items()}
    return {doc_id: score for doc_id, score in scores.items() if score > 0}


@pytest.mark.parametrize("ratio", first_quick([0.6, None, 0.3, 0.95]))
def test_negatives_match_brute_force(
    opened: MinedIndex, tiny_bundle: Path, corpus: dict[str, Doc], ratio: float | None
):
    pairs = [Pair(query, None, doc_id) for query, doc_id in QUERIES]
    # One query at a time: floating-point sums of the encoder depend on the batch.
    for pair in pairs:
        scores = brute_force(tiny_bundle, corpus, pair.query)
        positive = scores.get(pair.positive_id or "", 0.0)
        ranked = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
        expected: list[str] = []
        for doc_id in ranked[:12]:
            same = " ".join(TEXTS[doc_id].split())
            if same == " ".join(TEXTS[pair.positive_id or ""].split()):
                continue
            if ratio is not None and scores[doc_id] >= ratio * positive:
                continue
            if any(" ".join(TEXTS[other].split()) == same for other in expected):
                continue
            expected.append(doc_id)
        ((row, dropped),) = mine(opened, [pair], margin_ratio=ratio)
        if not expected:
            assert isinstance(row, BadRow)
            assert row.reason == "too_few_negatives"
            continue
        assert isinstance(row, MinedRow)
        assert names(row) == expected[:3]
        assert [hit.score for hit in row.negatives] == pytest.approx([scores[i] for i in expected[:3]], rel=1e-5)
        assert row.positive.score == pytest.approx(positive, rel=1e-5)
        assert dropped.total() + len(row.negatives) == min(12, len(ranked))


def test_positive_and_its_copies_never_become_negatives(opened: MinedIndex):
    query, doc_id = QUERIES[0]
    spaced = TEXTS[doc_id].replace(" ", "\n ")
    for pair in (Pair(query, None, doc_id), Pair(query, spaced), Pair(query, spaced, doc_id), Pair(query, spaced, "x")):
        ((row, dropped),) = mine(opened, [pair])
        assert isinstance(row, MinedRow)
        assert not {"lock", "lock-copy"} & set(names(row))
        assert dropped["positive"] == 2
        assert row.positive.text == (pair.positive or TEXTS[doc_id])
        assert row.positive.score == pytest.approx(row_of(mine(opened, [Pair(query, None, doc_id)])).positive.score)


def test_positive_outside_the_index_is_scored_by_its_vector(opened: MinedIndex, tiny_bundle: Path):
    query, text = QUERIES[0][0], "A thread waits for a lock until the thread that holds it lets it go."
    row = row_of(mine(opened, [Pair(query, text)]))
    encoder = BundleEncoder(tiny_bundle)
    asked = dict(zip(*(part.tolist() for part in encoder.encode([query], kind="query").row(0)), strict=True))
    terms, weights = encoder.encode([text], kind="document").row(0)
    exact = sum(asked.get(t, 0) * w for t, w in zip(terms.tolist(), weights.tolist(), strict=True))
    assert row.positive.doc_id == ""
    assert row.positive.score == pytest.approx(exact, rel=0.05)  # quantized like the index
    # The margin is relative to this score.
    ((_, dropped),) = mine(opened, [Pair(query, text)], margin=row.positive.score)
    assert dropped["false_negative"] + dropped["duplicate"] == 12


def test_positives_of_the_same_query_in_other_rows_are_dropped_by_id_and_text(opened: MinedIndex):
    query, doc_id = QUERIES[0]
    before = names(row_of(mine(opened, [Pair(query, None, doc_id)])))
    keys = sorted([id_key(before[0]), text_key(TEXTS[before[1]])])
    sketches = np.zeros((2, SKETCH_SIZE), np.uint32)
    known = KnownPositives(np.full(2, text_key(query), np.uint64), np.array(keys, np.uint64), sketches)
    ((row, dropped),) = mine(opened, [Pair(f"  {query}", None, doc_id)], known=known)
    assert isinstance(row, MinedRow)
    assert not set(before[:2]) & set(names(row))
    assert dropped["known_positive"] == 2
    another = mine(opened, [Pair(QUERIES[1][0], None, QUERIES[1][1])], known=known)
    assert another == mine(opened, [Pair(QUERIES[1][0], None, QUERIES[1][1])])


def test_hits_that_hold_the_positive_never_become_negatives(opened: MinedIndex):
    query, doc_id = QUERIES[0]
    part = " ".join(TEXTS[doc_id].split()[4:])  # as if the index had a title before the text
    before = names(row_of(mine(opened, [Pair(query, None, doc_id)])))
    for pair in (Pair(query, part.upper()), Pair(query, part, "x"), Pair(query, f"Locks. {TEXTS[doc_id]} End.")):
        ((row, dropped),) = mine(opened, [pair])
        assert isinstance(row, MinedRow)
        assert names(row) == before
        assert dropped["near_positive"] == 1  # and one duplicate
        assert row.counts == {"negatives": 3, "suspicious": 0}
    loose = names(row_of(mine(opened, [Pair(query, "it, and a thread that waits")], own_share=1.0)))
    assert "lock" in loose


def test_short_positive_drops_its_own_document_only(opened: MinedIndex):
    assert len(row_of(mine(opened, [Pair(QUERIES[0][0], "lock")])).negatives) == 3
    assert "sqrt" not in names(row_of(mine(opened, [Pair("a thread returns", "the square root of a number")])))


def test_near_copies_of_a_query_s_other_positives_are_dropped(opened: MinedIndex):
    query, doc_id = QUERIES[0]
    first, second, _ = names(row_of(mine(opened, [Pair(query, None, doc_id)])))
    others = [f"{TEXTS[first]} More text.", f"A title before {TEXTS[second]}"]
    surveys = [
        PairSurvey(
            1,
            Counter(),
            np.array([text_key(query)], np.uint64),
            np.array([text_key(text)], np.uint64),
            np.array([Fingerprint.of(text).sketch()], np.uint32),
            np.array([text_key(query)], np.uint64),
        )
        for text in others
    ]
    ((row, dropped),) = mine(opened, [Pair(query, None, doc_id)], known=KnownPositives.of(surveys))
    assert isinstance(row, MinedRow)
    assert not {first, second} & set(names(row))
    assert (dropped["known_positive"], dropped["near_positive"]) == (0, 2)


def test_teacher_scores_replace_index_scores(opened: MinedIndex):
    query, doc_id = QUERIES[0]
    first, second, third = names(row_of(mine(opened, [Pair(query, None, doc_id)])))
    scores = {doc_id: 5.0, first: 4.9, second: -2.0, third: 1.0}
    keys = sorted((pair_key(query, name), score) for name, score in scores.items())
    teacher = TeacherScores(
        np.array([key for key, _ in keys], np.uint64), np.array([score for _, score in keys], np.float32)
    )
    settled: dict[str, Any] = {"teacher": {"paths": ["scores"]}, "margin": 1, "scores": True}
    mined = mine(opened, [Pair(query, None, doc_id)], scores_of=teacher, **settled)
    row = row_of(mined)
    assert names(row) == [second, third]  # in the order of the index
    assert row.scores == (5.0, -2.0, 1.0)
    assert mined[0][1]["false_negative"] == 1
    assert mined[0][1]["unscored"] > 0
    absent = mine(opened, [Pair(query, None, third)], scores_of=TeacherScores.of([]), **settled)
    assert bad_of(absent).reason == "no_teacher_score"


def test_teacher_model_scores_the_positive_and_all_hits(opened: MinedIndex, splade_tiny: Path):
    # The encoder of the index without its head, as a dense teacher: its scores differ from those of the index.
    section = {"kind": "dense", "model": str(splade_tiny), "pooling": "mean"}
    model = TeacherModelSettings.model_validate(section)
    scorer = open_teacher(splade_tiny, model, batch_tokens=512, field="mine.teacher.model")
    pairs = [Pair(query, None, doc_id) for query, doc_id in QUERIES]
    settled: dict[str, Any] = {"teacher": {"model": section}, "margin": 0, "scores": True, "negatives": 5}
    dropped: Counter[str] = Counter()
    for pair, (row, counts) in zip(pairs, mine(opened, pairs, scores_of=TeacherModel(scorer), **settled), strict=True):
        dropped += counts
        if isinstance(row, BadRow):
            assert row.reason == "too_few_negatives"
            continue
        texts = [row.positive.text, *(hit.text for hit in row.negatives)]
        expected, _ = scorer.score([(pair.query, text) for text in texts])
        assert row.scores == pytest.approx(expected.tolist(), rel=1e-4)
        assert all(score < row.scores[0] for score in row.scores[1:])
    assert dropped["false_negative"] > 0
    assert dropped["unscored"] == 0


def test_scores_come_from_the_index_without_a_teacher(opened: MinedIndex):
    row = row_of(mine(opened, [Pair(QUERIES[0][0], None, "lock")], scores=True))
    assert row.scores == (row.positive.score, *(hit.score for hit in row.negatives))


def test_pairs_without_usable_positive_or_enough_negatives_are_bad_rows(opened: MinedIndex):
    query = QUERIES[0][0]
    assert bad_of(mine(opened, [Pair(query, None, "absent")])).reason == "unknown_positive"
    assert bad_of(mine(opened, [Pair(query, None, "empty")])).reason == "unknown_positive"
    few = bad_of(mine(opened, [Pair(query, None, "lock")], at_least=3, margin=1000))
    assert few.reason == "too_few_negatives"
    assert "false_negative" in few.detail


def test_every_pair_of_a_batch_gets_its_own_row(opened: MinedIndex):
    pairs = [Pair(query, None, doc_id) for query, doc_id in QUERIES]
    pairs[2] = Pair(pairs[2].query, "A text that the index does not hold, about JSON.")
    pairs[4] = Pair(pairs[4].query, None, "absent")
    together = mine(opened, pairs)
    for pair, (row, _) in zip(pairs, together, strict=True):
        ((alone, _),) = mine(opened, [pair])
        if isinstance(row, BadRow) or isinstance(alone, BadRow):
            assert row == alone
        else:
            assert (row.query, row.positive.text, names(row)) == (pair.query, alone.positive.text, names(alone))
