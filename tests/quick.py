"""Values of a parametrized test of which the quick suite runs the first, and `make test-long` the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_quick(values: Iterable[Any]) -> list[Any]:
    """Mark all values of one parameter but the first ``long``."""
    return [pytest.param(value, marks=[pytest.mark.long] if place else []) for place, value in enumerate(values)]
