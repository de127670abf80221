"""Sizes of plans: what holds for every corpus and cluster, and the values of some."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.plans.plan_header import Sizes, choose_sizes

MB, TB = 10**6, 10**12


def settings(**changes: Any) -> EncodeSettings:
    return EncodeSettings.model_validate({"bundle": "b", "table": "t", **changes})


@given(st.integers(0, 100 * TB), st.integers(1, 5000))
def test_every_actor_has_two_cells_of_each_wave_and_parts_stay_few(size: int, actors: int):
    sizes = choose_sizes(size, actors, settings())
    assert sizes.wave_megabytes >= 2 * actors * sizes.cell_megabytes
    assert 8 <= sizes.cell_megabytes <= 128
    assert 32 <= sizes.slice_megabytes <= 512
    assert 16 <= sizes.buckets <= 4096
    assert sizes.buckets & (sizes.buckets - 1) == 0
    if size >= 8 * actors * 128 * MB and size >= 1024 * 128 * MB:
        assert sizes.cell_megabytes == 128
    assert size <= 8 * actors * 8 * MB or size >= 8 * actors * (sizes.cell_megabytes - 1) * MB


@given(st.integers(0, 10 * TB), st.integers(0, TB), st.integers(1, 5000))
def test_cells_and_waves_do_not_shrink_when_the_corpus_grows(size: int, more: int, actors: int):
    small, large = (choose_sizes(each, actors, settings()) for each in (size, size + more))
    assert small.cell_megabytes <= large.cell_megabytes
    assert small.wave_megabytes <= large.wave_megabytes


@pytest.mark.parametrize(
    ("size", "actors", "wanted"),
    [
        (100 * MB, 2, Sizes(16, 256, 8, 32)),
        (4000 * MB, 2, Sizes(16, 256, 8, 32)),
        (100_000 * MB, 100, Sizes(256, 19_400, 97, 151)),
        (1_000_000 * MB, 1000, Sizes(2048, 250_000, 125, 512)),
        (64_000 * MB, 2, Sizes(32, 1000, 62, 32)),
    ],
)
def test_sizes_of_some_corpora(size: int, actors: int, wanted: Sizes):
    assert choose_sizes(size, actors, settings()) == wanted


def test_given_settings_and_the_buckets_of_a_table_are_kept():
    given = settings(wave_megabytes=7, cell_megabytes=3, slice_megabytes=5, buckets=6)
    assert choose_sizes(TB, 1000, given) == Sizes(6, 7, 3, 5)
    assert choose_sizes(TB, 1000, settings(), buckets=24).buckets == 24
