"""Batches by length, and the search for inputs on which a model fails."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.errors import EncoderBrokenError, StorageError
from lsr_prod.inference.encoder import token_batches
from lsr_prod.training.scoring.transformers import call_in_halves


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_limit(lengths: list[int], limit: int):
    batches = list(token_batches(sorted(range(len(lengths)), key=lengths.__getitem__), lengths, limit))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= limit for batch in batches)
    order = [lengths[i] for batch in batches for i in batch]
    assert order == sorted(order)


@given(st.sets(st.integers(0, 19)), st.sets(st.integers(0, 19)), st.integers(1, 20))
def test_failing_inputs_are_found_and_the_others_have_values(raising: set[int], bad: set[int], size: int):
    def call(rows: Sequence[int]) -> Any:
        if raising & set(rows):
            raise RuntimeError("no")
        return np.array([[np.nan if i in bad else i] for i in rows], np.float32)

    values, failed = call_in_halves([1] * 20, size, call, lambda: None)
    assert set(failed) == raising | bad
    assert {i: float(value[0]) for i, value in values.items()} == {i: i for i in range(20) if i not in raising | bad}
    assert all(failed[i] == "RuntimeError: no" for i in raising)


def test_broken_model_ends_the_job_instead_of_blaming_the_rows():
    def broken(*_: Any) -> Any:
        raise RuntimeError("device lost")

    with pytest.raises(EncoderBrokenError, match=r"device lost.*not the rows"):
        call_in_halves([1, 1], 2, broken, broken)


def test_deliberate_errors_are_not_blamed_on_rows():
    def call(_: Any) -> Any:
        raise StorageError("disk full")

    with pytest.raises(StorageError, match="disk full"):
        call_in_halves([1, 1], 2, call, lambda: None)
