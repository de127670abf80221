"""Several training sets: the set of a step and its rows are pure functions of seed and step."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.data_sets import DataSets, SetSchedule
from lsr_prod.training.loop.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stage_trainer import total_steps

ALONE = Group(0, 1, torch.device("cpu"))


class Rows(SampleRows):
    """Rows whose first token of a query says set and row."""

    def __init__(self, mark: int, rows: int, negatives: int) -> None:
        super().__init__(
            [
                Example(
                    np.array([mark + row, 5], np.int32),
                    tuple(np.array([mark + row, *range(2, 3 + row % 5)], np.int32) for _ in range(1 + negatives)),
                    None,
                )
                for row in range(rows)
            ]
        )


SETS = [Rows(1000, 22, 2), Rows(2000, 41, 0), Rows(3000, 9, 1)]


def stage(sampling: str = "proportional", weights: tuple[float, ...] = (1, 1, 1), **changes: object):
    sets = [
        {"paths": ["x"], "kind": kind, "name": name, "weight": weight}
        for name, kind, weight in zip(("a", "b", "c"), ("negatives", "pairs", "triples"), weights, strict=True)
    ]
    base = {
        "data": sets,
        "sampling": sampling,
        "batch": {"queries": 4, "negatives": 2},
        "steps": 8,
        "objective": {"losses": [{"loss": "info_nce"}]},
    }
    return FinetuneSettings.model_validate(base | changes)


def marks(sets: DataSets, step: int) -> list[int]:
    ((examples, _, _),) = sets.worker_rows(step, 1, ALONE)
    return [int(example.query[0]) for example in examples]


@pytest.mark.long
@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0.5, 3)), min_size=2, max_size=5),
    st.sampled_from(["proportional", "round_robin"]),
    st.integers(0, 2**31),
)
@settings(max_examples=60)
def test_every_epoch_has_batches_of_each_set_in_proportion(
    sets: list[tuple[int, float]], sampling: str, seed: int
) -> None:
    batches, weights = zip(*sets, strict=True)
    if sampling == "round_robin":
        weights = (1.0,) * len(batches)
    try:
        schedule = SetSchedule(batches, weights, sampling=sampling, seed=seed)
    except ConfigError:
        return
    total = sum(batches)
    assert schedule.steps_per_epoch == total
    found = [schedule.of(step) for step in range(3 * total)]
    for number in range(len(batches)):
        own = [batch for one, batch in found if one == number]
        assert sorted(own) == list(range(len(own)))  # no batch is skipped or repeated
    if sampling == "round_robin":
        assert [one for one, _ in found] == [step % len(batches) for step in range(3 * total)]
    else:
        for epoch in range(3):
            counted = Counter(one for one, _ in found[epoch * total : (epoch + 1) * total])
            mass = [batch * weight for batch, weight in sets]
            for number in range(len(batches)):
                assert abs(counted[number] - total * mass[number] / sum(mass)) <= 1
    taken = schedule.taken(2, 3 * total - 1)
    expected = Counter(one for one, _ in found[2:-1])
    assert taken.tolist() == [expected[number] for number in range(len(batches))]


def test_order_differs_by_epoch_and_seed() -> None:
    one = SetSchedule([20, 20], [1, 1], sampling="proportional", seed=0)
    other = SetSchedule([20, 20], [1, 1], sampling="proportional", seed=1)
    epochs = [[one.of(40 * epoch + step)[0] for step in range(40)] for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != [other.of(step)[0] for step in range(40)]
    assert epochs[0] != sorted(epochs[0])


def test_epoch_with_equal_weights_is_one_pass_over_every_set() -> None:
    sets = DataSets(SETS, stage())
    steps = 22 // 4 + 41 // 4 + 9 // 4
    assert total_steps(stage(steps=None, epochs=2), *sets.rows) == 2 * steps
    seen: Counter[int] = Counter()
    for step in range(steps):
        batch = marks(sets, step)
        assert len({mark // 1000 for mark in batch}) == 1  # one set per batch
        seen.update(batch)
    assert max(seen.values()) == 1
    assert sets.figures(steps) == {"rows/a": 20, "rows/b": 40, "rows/c": 8}
    again = DataSets(SETS, stage())
    assert marks(again, 7) == marks(sets, 7)
    assert again.figures(7) == sets.figures(7)


def test_weights_and_round_robin_change_shares() -> None:
    weighted = DataSets(SETS, stage(weights=(4, 1, 1)))
    taken = weighted.figures(17 * 20)
    assert taken["rows/a"] == pytest.approx(4 * 17 * 20 * 20 / 32, rel=0.05)
    turns = DataSets(SETS, stage("round_robin"))
    assert [marks(turns, step)[0] // 1000 for step in range(6)] == [1, 2, 3, 1, 2, 3]
    assert turns.figures(300) == {"rows/a": 400, "rows/b": 400, "rows/c": 400}
    with pytest.raises(ConfigError, match=r"data.2.weight: 0.001 gives this data set no batch"):
        DataSets(SETS, stage(weights=(1, 1, 0.001)))


@pytest.mark.long
def test_run_with_two_sets_resumes_to_the_bit(tiny_model: Path, tmp_path: Path) -> None:
    settings = stage()

    def trainer() -> Trainer:
        return Trainer(SparseEncoder.load(tiny_model), SETS, settings, ALONE)  # type: ignore[arg-type]

    whole = trainer()
    losses = [whole.train_step().losses for _ in range(5)]
    assert len({tuple(sorted(one)) for one in losses}) == 1
    first = trainer()
    for _ in range(2):
        first.train_step()
    write_checkpoint(tmp_path, Checkpoint(first.step, first.tensors(keep=True), {}), name="stage")
    second, found = trainer(), read_checkpoint(tmp_path, name="stage")
    second.load(found.step, found.tensors)
    assert [second.train_step().losses for _ in range(3)] == losses[2:]
    assert second.figures() == whole.figures()
    for (_, one), (_, other) in zip(
        second.encoder.model.named_parameters(), whole.encoder.model.named_parameters(), strict=True
    ):
        assert torch.equal(one, other)
