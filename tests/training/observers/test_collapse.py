import json
import logging
import math

import pytest

from lsr_prod.config.language import WatchSettings
from lsr_prod.errors import TrainingCollapsedError
from lsr_prod.training.observers.activity import CollapseGuard

GOOD = {"loss": 1.0, "grad_norm": 2.0, "l0_query": 5.0, "l0_document": 60.0}


def guard(*, patience: int = 3, target: int | None = 10, ramps_end: int = 100) -> CollapseGuard:
    return CollapseGuard(WatchSettings(patience=patience, l0_target=target), ramps_end)


def test_guard_accepts_healthy_run() -> None:
    one = guard()
    for step in range(0, 1000, 10):
        one.check(step, GOOD)
    assert one.state() == {"highest_l0_query": 5, "highest_l0_document": 60}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "words"), [("loss", "the loss"), ("grad_norm", "the norm of the gradients")])
def test_guard_ends_run_at_once_if_value_is_not_finite(name: str, words: str, value: float) -> None:
    with pytest.raises(TrainingCollapsedError, match=rf"step 7: {words} is -?(nan|inf); lower optimizer"):
        guard().check(7, {**GOOD, name: value})


@pytest.mark.parametrize(("name", "words"), [("l0_document", "all documents"), ("l0_query", "all queries")])
def test_guard_ends_run_after_patience_for_empty_vectors(
    name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = guard()
    one.check(10, {**GOOD, name: 0.0})
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"possible collapse: {words} have 0 active terms"
    ]
    one.check(20, {**GOOD, name: 0.0})
    assert len(caplog.records) == 1, "the warning comes once"
    with pytest.raises(
        TrainingCollapsedError, match=f"step 30: {words} have 0 active terms in 3 consecutive reports; lower"
    ):
        one.check(30, {**GOOD, name: 0.0})


def test_guard_forgets_symptom_after_recovery(caplog: pytest.LogCaptureFixture) -> None:
    one = guard()
    for step in range(0, 300, 30):
        one.check(step, {**GOOD, "l0_document": 0.0})
        one.check(step + 10, {**GOOD, "l0_document": 0.0})
        one.check(step + 20, GOOD)
    assert len(caplog.records) == 10, "each time anew"


def test_guard_counts_symptoms_separately() -> None:
    one = guard()
    for step, name in enumerate(["l0_document", "l0_query"] * 5):
        one.check(step, {**GOOD, name: 0.0})


def test_guard_ends_run_for_full_documents_only_after_ramps() -> None:
    one = guard()
    for step in range(0, 100, 10):
        one.check(step, {**GOOD, "l0_document": 101.0})
    one.check(100, {**GOOD, "l0_document": 101.0})
    one.check(110, {**GOOD, "l0_document": 101.0})
    with pytest.raises(
        TrainingCollapsedError, match=r"documents have 101 active terms, more than 10 times watch.l0_target"
    ):
        one.check(120, {**GOOD, "l0_document": 101.0})


def test_guard_accepts_ten_times_l0_target_and_no_target() -> None:
    one, free = guard(patience=1), guard(patience=1, target=None)
    one.check(200, {**GOOD, "l0_document": 100.0})
    free.check(200, {**GOOD, "l0_document": 30_000.0})


CHANCE = math.log(32)
EQUAL = {**GOOD, "loss_info_nce": CHANCE, "chance": CHANCE, "cosine_document": 0.9995, "cosine_query": 0.8}


@pytest.mark.parametrize(("kind", "plural"), [("document", "documents"), ("query", "queries")])
def test_guard_ends_run_for_equal_vectors_with_loss_at_chance(
    kind: str, plural: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = guard(patience=4)
    values = {**EQUAL, "cosine_document": 0.5, "cosine_query": 0.5, f"cosine_{kind}": 0.9995}
    one.check(10, values)
    assert not caplog.records, "an untrained encoder has both symptoms"
    one.check(20, values)
    one.check(30, values)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"possible collapse: all {plural} have nearly the same vector (mean cosine 0.9995) and the loss is at chance "
        "(3.466"
    ]
    with pytest.raises(TrainingCollapsedError, match=f"step 40: all {plural} have nearly the same vector"):
        one.check(40, values)


@pytest.mark.parametrize(
    "change",
    [
        {"cosine_document": 0.98},
        {"loss_info_nce": 0.9 * CHANCE},
        {"loss_info_nce": 0.5 * CHANCE, "loss_n_pair": 0.1},
        {"chance": None},
        {"loss_info_nce": 3 * CHANCE},
    ],
    ids=["different vectors", "loss below chance", "sum below chance", "not identical", "loss above chance"],
)
def test_guard_accepts_run_with_one_symptom_of_equal_vectors(change: dict[str, float | None]) -> None:
    one = guard(patience=1)
    for step in range(0, 1000, 10):
        one.check(step, {**EQUAL, **change})


def test_guard_counts_equal_vectors_from_end_of_warmup_on() -> None:
    one = CollapseGuard(WatchSettings(patience=3), 0, 50)
    for step in (0, 10, 20, 30, 40, 50, 60):
        one.check(step, EQUAL)
    with pytest.raises(TrainingCollapsedError, match="step 70"):
        one.check(70, EQUAL)


def test_guard_needs_identical_vectors_if_chance_is_unknown() -> None:
    values = {**GOOD, "loss_margin_mse": 4.0, "chance": None, "cosine_document": 0.99995}
    one = guard(patience=2)
    one.check(10, values)
    with pytest.raises(TrainingCollapsedError, match=r"\(mean cosine 0.9999\d*\) in 2|mean cosine 1.0000"):
        one.check(20, values)


def test_guard_ignores_absent_values() -> None:
    guard(patience=1).check(200, {"loss": None, "l0_document": None})
    guard(patience=1).check(200, {})


def test_guard_resumes_patience_from_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    first, second = guard(), guard()
    first.check(10, {**GOOD, "l0_query": 0.0})
    first.check(20, {**GOOD, "l0_query": 0.0})
    second.load_state(json.loads(json.dumps(first.state())))
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(TrainingCollapsedError, match="in 3 consecutive reports"):
        second.check(30, {**GOOD, "l0_query": 0.0})
    assert not caplog.records


# Step, loss, active terms of queries and of documents: SmolLM2-135M, bidirectional, low-rank updates, calibrated per
# term, 24 pairs of tldr at temperature 5 (benchmarks.train.decoder). The run leaves chance after 110 steps.
DECODER = [(1, 9.475, 884.4, 282.0), (11, 3.125, 89.9, 163.9), (21, 3.089, 58.0, 6.2), (31, 3.178, 21.0, 3.1)]


def test_guard_names_vanishing_vectors_within_30_steps(caplog: pytest.LogCaptureFixture) -> None:
    first, resumed = guard(patience=2, target=None), guard(patience=2, target=None)
    reports = [
        (step, {"loss_info_nce": loss, "chance": math.log(24), "l0_query": query, "l0_document": document})
        for step, loss, query, document in DECODER
    ]
    for step, values in reports[:3]:
        first.check(step, values)
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "possible collapse: documents shrank from 282 to 6.2 active terms and the loss is at chance",
        "possible collapse: queries shrank from 884 to 58.0 active terms and the loss is at chance",
    ]
    resumed.load_state(json.loads(json.dumps(first.state())))
    with pytest.raises(TrainingCollapsedError, match=r"step 31: documents shrank from 282 to 3\.1 active terms"):
        resumed.check(*reports[3])
    impatient = guard(patience=1, target=None)
    for step, values in reports[:2]:
        impatient.check(step, values)
    with pytest.raises(TrainingCollapsedError, match=r"step 21: documents shrank from 282 to 6\.2 active terms"):
        impatient.check(*reports[2])


@pytest.mark.parametrize("change", [{"loss_info_nce": 2.0}, {"chance": None}, {"l0_document": 40.0}])
def test_guard_accepts_fewer_terms_that_rank(change: dict[str, float | None]) -> None:
    one = guard(patience=1, target=None)
    one.check(1, {"loss_info_nce": 9.0, "chance": CHANCE, "l0_document": 300.0})
    one.check(2, {"loss_info_nce": CHANCE, "chance": CHANCE, "l0_document": 20.0, **change})
