import pytest

from lsr_prod.encoding.actors.places import matches


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("spot", "spot", True),
        ("spot", "demand", False),
        ("spot", None, False),
        ("!spot", "demand", True),
        ("!spot", None, True),
        ("in(a, b)", "b", True),
        ("in(a,b)", "c", False),
        ("!in(a, b)", "b", False),
        ("!in(a, b)", None, True),
    ],
)
def test_condition_of_a_label_selector_is_that_of_ray(condition: str, value: str | None, expected: bool):
    labels = {} if value is None else {"market": value}
    assert matches({"market": condition}, labels) == expected
