"""Every instruction set of this CPU."""

from collections.abc import Iterator

import pytest

from lsr_prod.search.kernels import native
from tests.search.kernels.small import SETS


@pytest.fixture(params=SETS)
def _instructions(request: pytest.FixtureRequest) -> Iterator[None]:
    assert native.choose_instructions(request.param) == request.param
    yield
    native.choose_instructions()
