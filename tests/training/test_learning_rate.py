import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config.language import OptimizerSettings
from lsr_prod.training.replica import rate_share, warmup_end


def optimizer(**fields: object) -> OptimizerSettings:
    return OptimizerSettings.model_validate(fields)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]),
        ("cosine", [0.5, 1, 1, (1 + math.cos(math.pi / 4)) / 2, 0.5, (1 + math.cos(3 * math.pi / 4)) / 2, 0, 0]),
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_learning_rate_by_schedule(schedule: str, expected: list[float]) -> None:
    settings = optimizer(schedule=schedule, warmup_steps=2)
    rates = [rate_share(settings, step, 6) for step in range(8)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_longer_schedule_does_not_reach_zero() -> None:
    settings = optimizer(warmup_steps=0, schedule_steps=20)
    assert rate_share(settings, 10, 11) == 0.5


def test_shorter_schedule_stays_at_zero() -> None:
    settings = optimizer(warmup_steps=0, schedule_steps=5)
    assert [rate_share(settings, step, 10) for step in (5, 9)] == [0.0, 0.0]


@given(st.integers(1, 200), st.floats(0, 0.99), st.sampled_from(["linear", "cosine", "constant"]))
def test_learning_rate_is_positive_at_every_step(steps: int, share: float, schedule: str) -> None:
    settings = optimizer(warmup_share=share, schedule=schedule)
    rates = [rate_share(settings, step, steps) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    assert max(rates) == 1
    assert warmup_end(settings, steps) == round(share * steps)
