"""Tests of the plan: its digest depends on everything that decides the rows, and it reserves its output folder."""

from pathlib import Path
from typing import Any

import pytest

from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.storage import Store
from lsr_prod.training.data.row_jobs import MANIFEST, PLAN, RowJob
from lsr_prod.training.negatives.inputs import cut_pairs
from lsr_prod.training.negatives.job import make_job, mining_job
from lsr_prod.training.scoring.teacher import PinnedModel
from tests.training.negatives.conftest import deployment, pairs_by_id, settings, write_lines


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "pairs.jsonl", pairs_by_id())


def plan_of(pairs: Path, output: Path, version: str = "v", model: PinnedModel | None = None, **changes: Any) -> RowJob:
    section = settings("index", pairs, output, **changes)
    return mining_job(section, {}, cut_pairs(section, {}), [], model, version=version, documents=14)


def test_digest_depends_only_on_inputs_that_decide_the_rows(pairs: Path, tmp_path: Path):
    digest = plan_of(pairs, tmp_path / "a").digest
    for same in ({"actors": 7}, {"threads_per_actor": 2}, {"data": {"max_bad_fraction": 0.5}}, {"max_suspicious": 1}):
        assert plan_of(pairs, tmp_path / "b", **same).digest == digest, same
    moved = tmp_path / "moved"
    moved.mkdir()
    assert plan_of(pairs.rename(moved / "pairs.jsonl"), tmp_path / "a").digest == digest
    pairs = moved / "pairs.jsonl"
    others: list[dict[str, Any]] = [
        {"depth": 13}, {"skip": 1}, {"negatives": 4}, {"at_least": 2}, {"sample": "random"}, {"seed": 1},
        {"margin": 1}, {"margin_ratio": 0.9}, {"scores": True}, {"own_share": 0.7}, {"batch": 8}, {"separator": ""},
        {"data": {"max_text_bytes": 9}}, {"positive_id": "x"}, {"version": "w"},
    ]  # fmt: skip
    digests = {plan_of(pairs, tmp_path / "a", **other).digest for other in others}
    assert len(digests | {digest}) == len(others) + 1
    write_lines(pairs, pairs_by_id()[1:])
    assert plan_of(pairs, tmp_path / "a").digest not in digests | {digest}


def test_digest_depends_on_the_model_of_a_teacher_and_not_on_its_place(pairs: Path, tmp_path: Path):
    def digest(model: str, place: str, **changes: Any) -> str:
        teacher = {"model": {"kind": "sparse", "model": place}, **changes}
        pinned = PinnedModel(place, model)
        return plan_of(pairs, tmp_path / "a", model=pinned, margin=1, teacher=teacher).digest

    assert digest("m", "here") == digest("m", "there")
    assert len({digest("m", "here"), digest("n", "here"), digest("m", "here", batch_tokens=1)}) == 3
    stored = plan_of(pairs, tmp_path / "a", margin=1, teacher={"paths": ["scores.jsonl"]}).plan
    assert stored["settings"]["teacher"] == {"key": "query", "unscored": "drop"}
    assert "teacher_model" not in stored


def test_output_folder_of_another_plan_is_rejected(pairs: Path, tmp_path: Path):
    plan = plan_of(pairs, tmp_path / "out")
    assert plan.reserved.manifest() is None
    plan.reserved.reserve(plan.plan)
    plan.reserved.reserve(plan.plan)
    assert plan.reserved.manifest() is None
    with pytest.raises(ConfigError, match=r"^mine\.output: .* other settings, data or another index version"):
        plan_of(pairs, tmp_path / "out", version="w").reserved.manifest()
    plan.output.put_new(MANIFEST, b'{"counts": 1}')
    assert plan.reserved.manifest() == {"counts": 1}


def test_output_folder_with_other_files_is_rejected(pairs: Path, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"^mine\.output: .* holds notes\.txt; give a folder that is empty or absent"):
        plan_of(pairs, tmp_path / "out").reserved.manifest()


def test_damaged_plan_raises_error(pairs: Path, tmp_path: Path):
    Store(str(tmp_path / "out")).put_new(PLAN, b"[1]")
    with pytest.raises(ArtifactError, match=r"damaged \(.*\); delete the folder"):
        plan_of(pairs, tmp_path / "out").reserved.manifest()


def test_plan_records_the_version_and_size_of_its_index(pairs: Path, mined_index: Path, tmp_path: Path):
    plan = make_job(deployment(settings(mined_index, pairs, tmp_path / "out")))
    assert plan.facts["documents"] == 14
    assert len(plan.facts["index_version"]) == 64
    assert plan.plan["index_version"] == plan.pins["index_version"] == plan.facts["index_version"]
    assert not (tmp_path / "out").exists()
