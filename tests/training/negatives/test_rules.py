"""Tests of every rule with hand-made cases, and of all rules against a slow reference."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import MineSettings
from lsr_prod.training.negatives.rules import RULES, Candidate, Choice, choose, highest_score
from tests.training.negatives.conftest import settings


def mine_settings(**changes: Any) -> MineSettings:
    return settings("index", "pairs", **changes)


def hits(*texts: str) -> list[Candidate]:
    """Return documents d0, d1, … with descending scores from 10."""
    return [Candidate(f"d{i}", text, 10.0 - i) for i, text in enumerate(texts)]


def chosen(
    found: list[Candidate],
    *,
    positives: str = "",
    known: str = "",
    near: str = "",
    bound: float = 99,
    **changes: Any,
) -> Choice:
    return choose(
        found,
        settings=mine_settings(**changes),
        positives=positives.split(),
        known=known.split(),
        is_near=lambda hit: hit.doc_id in near.split(),
        score_of=lambda hit: hit.score,
        bound=bound,
        row="row",
    )


def ids(choice: Choice) -> str:
    return " ".join(hit.doc_id for hit in choice.negatives)


def test_highest_scores_are_selected():
    choice = chosen(hits(*"abcde"))
    assert (ids(choice), choice.dropped) == ("d0 d1 d2", {"not_sampled": 2})


def test_first_ranks_are_skipped():
    choice = chosen(hits(*"abcde"), skip=2)
    assert (ids(choice), choice.dropped) == ("d2 d3 d4", {"skipped": 2})


def test_positive_and_copies_of_its_text_are_dropped_at_any_rank():
    choice = chosen(hits("x y", "a", "x  y", "b", "x\ny"), positives="d2")
    assert (ids(choice), choice.dropped) == ("d1 d3", {"positive": 3})


def test_positive_of_another_row_and_its_copies_are_dropped():
    choice = chosen(hits("k", "a", "k", "b"), known="d2")
    assert (ids(choice), choice.dropped) == ("d1 d3", {"known_positive": 2})


def test_copies_of_a_skipped_positive_are_dropped():
    choice = chosen(hits("p", "p", "b"), positives="d0", skip=1)
    assert (ids(choice), choice.dropped) == ("d2", {"skipped": 1, "positive": 1})


def test_empty_positive_does_not_drop_other_empty_documents_as_positives():
    choice = chosen(hits("", " ", "a"), positives="d0")
    assert (ids(choice), choice.dropped) == ("d2", {"positive": 1, "empty": 1})


def test_near_positive_is_replaced_by_the_next_hit():
    choice = chosen(hits(*"abcdefg"), near="d0 d2 d6")
    assert (ids(choice), choice.dropped) == ("d1 d3 d4", {"near_positive": 2, "not_sampled": 2})  # d6 was not checked


def test_near_positive_is_replaced_in_a_random_sample():
    found = hits(*(f"text {i}" for i in range(30)))
    before = chosen(found, sample="random").negatives
    choice = chosen(found, sample="random", near=before[1].doc_id)
    assert {hit.doc_id for hit in before} - {hit.doc_id for hit in choice.negatives} == {before[1].doc_id}
    assert choice.dropped == {"near_positive": 1, "not_sampled": 26}


def test_score_at_or_above_the_bound_is_a_false_negative():
    choice = chosen(hits(*"abcde"), bound=8.0)
    assert (ids(choice), choice.dropped) == ("d3 d4", {"false_negative": 3})


def test_repeated_text_is_selected_once():
    choice = chosen(hits("a", "a ", "b", " a"))
    assert (ids(choice), choice.dropped) == ("d0 d2", {"duplicate": 2})


@pytest.mark.parametrize(("unscored", "taken", "dropped"), [("drop", "d2", "unscored"), ("keep", "d1 d2", "")])
def test_candidate_without_teacher_score_is_dropped_or_kept_as_configured(unscored: str, taken: str, dropped: str):
    teacher = {"paths": ["scores"], "unscored": unscored}
    scores = {"d0": 0.9, "d2": 0.1}
    choice = choose(
        hits(*"abc"),
        settings=mine_settings(teacher=teacher, margin=0.1),
        positives=(),
        known=(),
        is_near=lambda _: False,
        score_of=lambda hit: scores.get(hit.doc_id),
        bound=0.9,
        row="row",
    )
    assert ids(choice) == taken
    assert choice.dropped == Counter(["false_negative", *dropped.split()])


def test_unscored_copy_of_a_false_negative_is_dropped():
    choice = choose(
        hits("a", "b", "a"),
        settings=mine_settings(teacher={"paths": ["scores"], "unscored": "keep"}, margin=0.1),
        positives=(),
        known=(),
        is_near=lambda _: False,
        score_of=lambda hit: {"d2": 5.0}.get(hit.doc_id),
        bound=1.0,
        row="row",
    )
    assert (ids(choice), choice.dropped) == ("d1", {"false_negative": 2})


def test_highest_score_matches_hand_computed_bounds():
    assert highest_score(10, mine_settings()) == float("inf")
    assert highest_score(10, mine_settings(margin_ratio=0.9)) == 9
    assert highest_score(10, mine_settings(margin=3)) == 7
    assert highest_score(10, mine_settings(margin_ratio=0.9, margin=3)) == 7
    assert highest_score(10, mine_settings(margin_ratio=0.5, margin=3)) == 5
    assert highest_score(-10, mine_settings(margin_ratio=0.9)) == -11  # below the positive, as 9 is below 10
    assert highest_score(0, mine_settings(margin_ratio=0.9)) == 0


def test_random_sample_depends_only_on_seed_and_row():
    found = hits(*(f"text {i}" for i in range(40)))

    def drawn(seed: int, row: str, among: list[Candidate] = found) -> list[str]:
        choice = choose(
            among,
            settings=mine_settings(sample="random", seed=seed, negatives=10, depth=40),
            positives=(),
            known=(),
            is_near=lambda _: False,
            score_of=lambda hit: hit.score,
            bound=99,
            row=row,
        )
        return [hit.doc_id for hit in choice.negatives]

    once = drawn(0, "row")
    assert drawn(0, "row") == once
    assert once != [f"d{i}" for i in range(10)]
    assert once == sorted(once, key=lambda name: int(name[1:]))  # in descending order of score
    assert drawn(1, "row") != once
    assert drawn(0, "another") != once
    # If one candidate is removed, one other replaces it and the rest stay.
    left = drawn(0, "row", [hit for hit in found if hit.doc_id != once[0]])
    assert set(once[1:]) < set(left)


def test_candidates_are_sampled_uniformly():
    found = hits(*(f"text {i}" for i in range(10)))
    counts: Counter[str] = Counter()
    for row in range(2000):
        choice = choose(
            found,
            settings=mine_settings(sample="random", negatives=3),
            positives=(),
            known=(),
            is_near=lambda _: False,
            score_of=lambda hit: hit.score,
            bound=99,
            row=str(row),
        )
        counts.update(hit.doc_id for hit in choice.negatives)
    assert len(counts) == 10
    assert all(500 < count < 700 for count in counts.values())


NAMES = st.sampled_from("abcd")


@given(
    rows=st.lists(st.tuples(NAMES, st.integers(0, 6), st.booleans(), st.booleans()), max_size=12),
    skip=st.integers(0, 3),
    negatives=st.integers(1, 4),
    bound=st.integers(0, 7),
    unscored=st.sets(st.integers(0, 11)),
    near=st.sets(st.integers(0, 11)),
    keep=st.booleans(),
)
def test_rules_match_a_slow_reference(
    rows: list[tuple[str, int, bool, bool]],
    skip: int,
    negatives: int,
    bound: int,
    unscored: set[int],
    near: set[int],
    keep: bool,
):
    found = [Candidate(f"{i}", text, float(score)) for i, (text, score, _, _) in enumerate(rows)]
    teacher = {"paths": ["scores"], "unscored": "keep" if keep else "drop"}
    choice = choose(
        found,
        settings=mine_settings(skip=skip, negatives=negatives, teacher=teacher, margin=1),
        positives=[hit.doc_id for hit in found if rows[int(hit.doc_id)][2]],
        known=[hit.doc_id for hit in found if rows[int(hit.doc_id)][3]],
        is_near=lambda hit: int(hit.doc_id) in near,
        score_of=lambda hit: None if int(hit.doc_id) in unscored else hit.score,
        bound=bound,
        row="row",
    )

    def same(i: int) -> list[int]:
        return [j for j in range(len(rows)) if rows[j][0] == rows[i][0]]

    expected = []
    for i in range(skip, len(rows)):
        if any(rows[j][2] or rows[j][3] or (j not in unscored and rows[j][1] >= bound) for j in same(i)):
            continue
        if i in unscored and not keep:
            continue
        if any(found[j] in expected for j in same(i)):
            continue
        expected.append(found[i])
    expected = [hit for hit in expected if int(hit.doc_id) not in near]
    assert list(choice.negatives) == expected[:negatives]
    assert choice.dropped.total() + len(choice.negatives) == len(rows)
    assert set(choice.dropped) <= set(RULES)
