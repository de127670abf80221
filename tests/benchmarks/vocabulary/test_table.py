from pathlib import Path
from typing import Any

import ir_measures

from benchmarks.vocabulary.table import all_jobs, rows, spread
from benchmarks.vocabulary.table_models import Outcome, few_queries
from benchmarks.vocabulary.table_stages import STAYS, Job, Sizes, stages_of
from lsr_prod.evaluation.validation import Collection


def outcome(value: float) -> Outcome:
    by_collection = {"tldr": value, "scifact": 2 * value}
    return Outcome(0.4, 3 * value, by_collection, by_collection, by_collection, by_collection)


def test_every_start_has_a_job_for_each_seed() -> None:
    jobs = all_jobs(["semantic", "mean"], seeds=2)

    assert len(set(jobs)) == len(jobs) == 2 * (2 * 2 + 1)
    assert list(dict.fromkeys(job.row for job in jobs)) == [
        "semantic, direct", "semantic, adapted", "mean, direct", "mean, adapted", STAYS
    ]  # fmt: skip


def test_a_row_holds_its_seeds_in_order() -> None:
    found = {Job("mean", True, seed): {"off": outcome(seed), "on": outcome(seed + 10)} for seed in (1, 0)}

    row = rows(found)["mean, adapted"]

    assert row["off"]["rr10"] == {"tldr": [0, 1], "scifact": [0, 2]}
    assert row["on"]["rr10"]["tldr"] == [10, 11]
    assert row["on"]["loss"] == [30, 33]
    assert row["off"]["active"] == [0.4, 0.4]


def test_a_cell_is_mean_and_range() -> None:
    assert spread([0.1, 0.2, 0.6]) == "0.300 (0.100-0.600)"


def test_few_queries_are_from_all_over_the_collection() -> None:
    queries = {f"q{number}": "text" for number in range(10)}
    judged = [ir_measures.Qrel(query_id, "d", 1) for query_id in queries]

    few = few_queries(Collection({"d": "text"}, queries, judged), 4)

    assert list(few.queries) == ["q0", "q3", "q6", "q9"]
    assert [qrel.query_id for qrel in few.qrels] == ["q0", "q3", "q6", "q9"]


def test_what_differs_between_cells_is_what_they_are_named_for(tmp_path: Path) -> None:
    def settings(job: Job, work: Path = tmp_path) -> dict[str, Any]:
        return stages_of(job, Sizes(), work).to_json()

    direct, adapted = settings(Job("mean", False, 1)), settings(Job("mean", True, 1))

    assert adapted["adapt"]["trained"] == "embeddings"
    assert {**adapted, "adapt": None} == direct
    assert settings(Job(STAYS, False, 1)) == {**direct, "transfer": None}
    assert settings(Job("mean", False, 1), tmp_path / "elsewhere") == direct
    assert settings(Job("mean", False, 2)) != direct
