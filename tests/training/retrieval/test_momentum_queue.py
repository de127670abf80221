import collections
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsr_prod.config.objective import QueueSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import BatchKeys, TrainBatch, pad
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.gradient import MomentumQueue, NegativeQueue
from tests.training.vectors.test_heaviest_terms import keep_top

ALONE = Group(0, 1, torch.device("cpu"))
V = 8


def _part(seed: int, texts: int) -> TrainBatch:
    draw = np.random.default_rng(seed)
    rows = [np.array([101, *draw.integers(1000, 30000, 5), 102], np.int32) for _ in range(texts)]
    documents = torch.tensor([10 * seed + text for text in range(texts)])
    keys = BatchKeys(torch.tensor([seed]), documents, *torch.empty(2, 0, dtype=torch.int64))
    return TrainBatch(pad(rows[:1], 0), pad(rows, 0), None, keys=keys)


def test_momentum_queue_encodes_with_moving_average(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    negatives = MomentumQueue(encoder, QueueSettings(size=5, terms=30_522), ALONE)
    assert negatives.documents() is None
    part = _part(0, 3)
    with torch.no_grad():
        expected = encoder(part.documents.input_ids, part.documents.attention_mask)
        encoder.model.cls.predictions.bias.add_(3.0)
    encoder.train()
    negatives.push(part)
    rows = negatives.documents()
    assert rows is not None
    torch.testing.assert_close(rows.vectors.dense(), expected)
    assert rows.keys.tolist() == [0, 1, 2]
    negatives.push(_part(1, 4))
    rows = negatives.documents()
    assert rows is not None
    assert len(rows.vectors.dense()) == 5
    assert sorted(rows.keys.tolist()) == [2, 10, 11, 12, 13]


def test_moving_average_follows_by_momentum(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    negatives = MomentumQueue(encoder, QueueSettings(momentum=0.75), ALONE)
    start = encoder.model.cls.predictions.bias.detach().clone()
    with torch.no_grad():
        encoder.model.cls.predictions.bias.add_(2.0)
    negatives.follow(encoder)
    slow = dict(negatives.tensors())["slow.cls.predictions.bias"]
    torch.testing.assert_close(slow, start + 0.5)


def test_momentum_queue_resumes_bit_identically(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    first = MomentumQueue(encoder, QueueSettings(size=4), ALONE)
    with torch.no_grad():
        encoder.model.cls.predictions.bias.add_(1.0)
    first.follow(encoder)
    first.push(_part(0, 3))
    second = MomentumQueue(SparseEncoder.load(tiny_model), QueueSettings(size=4), ALONE)
    second.load(dict(first.tensors()))
    for negatives in (first, second):
        negatives.follow(encoder)
        negatives.push(_part(1, 3))
    one, other = first.documents(), second.documents()
    assert one is not None
    assert other is not None
    assert torch.equal(one.vectors.dense(), other.vectors.dense())
    assert torch.equal(one.keys, other.keys)


def documents(seed: int, rows: int) -> torch.Tensor:
    return torch.relu(torch.randn(rows, V, generator=torch.Generator().manual_seed(seed)))


@given(st.integers(1, 9), st.integers(1, 10), st.lists(st.integers(0, 12), max_size=6))
def test_queue_keeps_newest_documents_with_heaviest_terms(size: int, terms: int, pushes: list[int]) -> None:
    queue = NegativeQueue(size, terms, V)
    plain: collections.deque[tuple[float, ...]] = collections.deque(maxlen=size)
    keys: collections.deque[int] = collections.deque(maxlen=size)
    for seed, rows in enumerate(pushes):
        queue.push(documents(seed, rows), torch.arange(rows) + 100 * seed)
        plain.extend(tuple(row) for row in keep_top(documents(seed, rows), terms).tolist())
        held = queue.kept().dense()
        assert len(queue) == len(held) == len(plain)
        assert sorted(map(tuple, held.tolist())) == sorted(plain)
        assert torch.equal(queue.kept().dense(), held)
        keys.extend(range(100 * seed, 100 * seed + rows))
        by_key = dict(zip(keys, plain, strict=True))
        assert [by_key[key] for key in queue.keys().tolist()] == [tuple(row) for row in held.tolist()]


def test_empty_queue_has_no_rows() -> None:
    assert NegativeQueue(4, 2, V).kept().dense().shape == (0, V)


@pytest.mark.parametrize("before", [1, 2, 4])
def test_restored_queue_continues_bit_identically(before: int) -> None:
    straight, first, second = (NegativeQueue(5, 3, V) for _ in range(3))
    for step in range(6):
        straight.push(documents(step, 2), torch.tensor([step, -step]))
        if step == before:
            second.load_state(first.state())
        (first if step < before else second).push(documents(step, 2), torch.tensor([step, -step]))
    assert torch.equal(straight.kept().dense(), second.kept().dense())
    assert all(torch.equal(straight.state()[key], second.state()[key]) for key in straight.state())


def test_queue_state_is_copy_without_gradient() -> None:
    queue = NegativeQueue(2, 2, V)
    queue.push(documents(0, 2).requires_grad_(), torch.tensor([1, 2]))
    state = queue.state()
    kept = {key: value.clone() for key, value in state.items()}
    queue.push(documents(1, 2), torch.tensor([3, 4]))
    assert all(torch.equal(state[key], kept[key]) for key in kept)
    assert not queue.kept().dense().requires_grad
