import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.training.vocabulary.transfer import transfer_bias, unigram_bias


def test_transferred_bias_equals_value_by_hand():
    # The source has mean 2 and deviation 1, the target mean 10 and deviation 4.
    found = transfer_bias(torch.tensor([1.0, 3.0]), torch.tensor([6.0, 14.0, 6.0, 14.0]))
    torch.testing.assert_close(found, torch.tensor([1.0, 3.0, 1.0, 3.0]))


@given(st.integers(0, 10_000))
def test_transferred_bias_equals_equation_10(seed: int):
    random = np.random.default_rng(seed)
    source, target = random.normal(-3, 2, 20), random.normal(1, 0.5, 30)
    expected = source.mean() + source.std() * (target - target.mean()) / target.std()
    found = transfer_bias(torch.from_numpy(source), torch.from_numpy(target)).numpy()
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose([found.mean(), found.std()], [source.mean(), source.std()])
    np.testing.assert_array_equal(np.argsort(found), np.argsort(target))


def test_constant_target_gives_mean_of_source():
    torch.testing.assert_close(transfer_bias(torch.tensor([1.0, 3.0]), torch.zeros(3)), torch.full((3,), 2.0))


def test_unigram_bias_is_log_counts_with_mean_zero():
    logs = [math.log(1), math.log(10), math.log(100)]
    mean = sum(logs) / 3
    torch.testing.assert_close(unigram_bias([0, 9, 99]), torch.tensor([log - mean for log in logs]))
