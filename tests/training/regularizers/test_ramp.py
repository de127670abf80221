import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lsr_prod.config.objective import RegularizerSettings
from lsr_prod.training.regularizers import ramp, ramp_end


def regularizer(**fields: object) -> RegularizerSettings:
    return RegularizerSettings.model_validate({"regularizer": "flops", "query": 1.0} | fields)


@pytest.mark.parametrize(
    ("kind", "expected"), [("none", [1, 1, 1, 1]), ("linear", [0, 0.25, 0.5, 1]), ("quadratic", [0, 0.0625, 0.25, 1])]
)
def test_ramp_values_by_kind(kind: str, expected: list[float]) -> None:
    settings = regularizer(ramp=kind) if kind == "none" else regularizer(ramp=kind, ramp_share=0.4)
    assert [ramp(settings, step, 10) for step in (0, 1, 2, 4)] == expected
    assert ramp(settings, 9, 10) == 1
    assert ramp_end(settings, 10) == (0 if kind == "none" else 4)


def test_weights_are_full_from_first_step_unless_ramp_is_declared() -> None:
    assert ramp(regularizer(), 0, 100) == 1.0
    assert ramp_end(regularizer(), 100) == 0


@pytest.mark.parametrize("length", [{"ramp_steps": 10}, {"ramp_share": 0.5}])
def test_length_of_ramp_without_ramp_is_rejected(length: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="has no effect without ramp linear or quadratic"):
        regularizer(**length)
    again = regularizer(ramp="linear", **length)
    assert RegularizerSettings.model_validate(again.model_dump()) == again


def test_settings_without_ramp_can_be_read_back() -> None:
    assert RegularizerSettings.model_validate(regularizer().model_dump()) == regularizer()


def test_ramp_steps_override_ramp_share() -> None:
    assert ramp(regularizer(ramp="linear", ramp_steps=50, ramp_share=0.1), 25, 100) == 0.5


@given(st.integers(1, 300), st.floats(0.001, 1))
def test_ramp_increases_to_one(steps: int, share: float) -> None:
    settings = regularizer(ramp="quadratic", ramp_share=share)
    factors = [ramp(settings, step, steps) for step in range(steps + 1)]
    assert factors == sorted(factors)
    assert factors[0] == 0
    assert factors[-1] == 1
