import numpy as np
import pytest

from lsr_prod_contrib.sweeps.tuning import cross_validate, make_folds


@pytest.mark.parametrize(("queries", "folds"), [(10, 5), (11, 3), (2, 2)])
def test_folds_are_even_and_drawn_by_the_seed(queries: int, folds: int) -> None:
    found = make_folds(queries, folds, seed=1)
    counts = np.bincount(found, minlength=folds)
    assert counts.max() - counts.min() <= 1
    assert np.array_equal(found, make_folds(queries, folds, seed=1))


def test_other_seed_draws_other_folds() -> None:
    assert not np.array_equal(make_folds(50, 5, seed=1), make_folds(50, 5, seed=2))


def test_each_query_is_measured_by_a_choice_that_did_not_see_it() -> None:
    rng = np.random.default_rng(0)
    values, folds = rng.random((4, 20)), make_folds(20, 5, seed=0)
    found, choices = cross_validate(lambda mask: int(values[:, mask].mean(axis=1).argmax()), lambda i: values[i], folds)
    for fold in range(5):
        best = int(values[:, folds != fold].mean(axis=1).argmax())
        assert choices[fold] == best
        assert np.array_equal(found[folds == fold], values[best, folds == fold])
