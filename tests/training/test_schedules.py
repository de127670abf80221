import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config.objective import RegularizerSettings
from lsr_prod.config.train import OptimizerSettings
from lsr_prod.training import schedules


def regularizer(**fields: object) -> RegularizerSettings:
    return RegularizerSettings.model_validate({"regularizer": "flops", "query": 1.0} | fields)


def optimizer(**fields: object) -> OptimizerSettings:
    return OptimizerSettings.model_validate({"learning_rate": 2.0} | fields)


@pytest.mark.parametrize(
    ("kind", "expected"), [("none", [1, 1, 1, 1]), ("linear", [0, 0.25, 0.5, 1]), ("quadratic", [0, 0.0625, 0.25, 1])]
)
def test_ramps(kind: str, expected: list[float]) -> None:
    settings = regularizer(ramp=kind, ramp_share=0.4)
    assert [schedules.ramp(settings, step, 10) for step in (0, 1, 2, 4)] == expected
    assert schedules.ramp(settings, 9, 10) == 1
    assert schedules.ramp_end(settings, 10) == (0 if kind == "none" else 4)


def test_steps_of_a_ramp_come_before_its_share() -> None:
    assert schedules.ramp(regularizer(ramp="linear", ramp_steps=50, ramp_share=0.1), 25, 100) == 0.5


@given(st.integers(1, 300), st.floats(0.001, 1))
def test_a_ramp_never_falls_and_ends_whole(steps: int, share: float) -> None:
    settings = regularizer(ramp_share=share)
    factors = [schedules.ramp(settings, step, steps) for step in range(steps + 1)]
    assert factors == sorted(factors)
    assert factors[0] == 0
    assert factors[-1] == 1


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [1, 2, 2, 1.5, 1, 0.5, 0, 0]),
        ("cosine", [1, 2, 2, 1 + math.cos(math.pi / 4), 1, 1 + math.cos(3 * math.pi / 4), 0, 0]),
        ("constant", [1, 2, 2, 2, 2, 2, 2, 2]),
    ],
)
def test_learning_rates(schedule: str, expected: list[float]) -> None:
    settings = optimizer(schedule=schedule, warmup_steps=2)
    rates = [schedules.learning_rate(settings, step, 6) for step in range(8)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_a_longer_schedule_is_never_finished() -> None:
    settings = optimizer(warmup_steps=0, schedule_steps=20)
    assert schedules.learning_rate(settings, 10, 11) == 1.0


def test_a_shorter_schedule_stays_at_zero() -> None:
    settings = optimizer(warmup_steps=0, schedule_steps=5)
    assert [schedules.learning_rate(settings, step, 10) for step in (5, 9)] == [0.0, 0.0]


@given(st.integers(1, 200), st.floats(0, 0.99), st.sampled_from(["linear", "cosine", "constant"]))
def test_every_step_of_a_training_learns(steps: int, share: float, schedule: str) -> None:
    settings = optimizer(warmup_share=share, schedule=schedule)
    rates = [schedules.learning_rate(settings, step, steps) for step in range(steps)]
    assert all(0 < rate <= 2 for rate in rates)
    assert max(rates) == 2
    assert schedules.warmup_end(settings, steps) == round(share * steps)
