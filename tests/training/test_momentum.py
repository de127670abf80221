from pathlib import Path

import numpy as np
import torch

from lsr_prod.config.objective import QueueSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import TrainBatch, pad
from lsr_prod.training.momentum import SlowNegatives
from lsr_prod.training.process_group import Group

ALONE = Group(0, 1, torch.device("cpu"))


def _part(seed: int, texts: int) -> TrainBatch:
    draw = np.random.default_rng(seed)
    rows = [np.array([101, *draw.integers(1000, 30000, 5), 102], np.int32) for _ in range(texts)]
    return TrainBatch(pad(rows[:1], 0), pad(rows, 0), None)


def test_the_queue_holds_what_the_slow_copy_encodes_not_what_the_model_does(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    negatives = SlowNegatives(encoder, QueueSettings(size=5, terms=30_522), ALONE)
    assert negatives.documents() is None
    part = _part(0, 3)
    with torch.no_grad():
        expected = encoder(part.documents.input_ids, part.documents.attention_mask)
        encoder.model.cls.predictions.bias.add_(3.0)
    encoder.train()
    negatives.push(part)
    rows = negatives.documents()
    assert rows is not None
    torch.testing.assert_close(rows.dense(), expected)
    negatives.push(_part(1, 4))
    rows = negatives.documents()
    assert rows is not None
    assert len(rows.dense()) == 5


def test_the_slow_copy_follows_by_its_momentum(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    negatives = SlowNegatives(encoder, QueueSettings(momentum=0.75), ALONE)
    start = encoder.model.cls.predictions.bias.detach().clone()
    with torch.no_grad():
        encoder.model.cls.predictions.bias.add_(2.0)
    negatives.follow(encoder)
    slow = dict(negatives.tensors())["slow.cls.predictions.bias"]
    torch.testing.assert_close(slow, start + 0.5)


def test_it_goes_on_bit_for_bit(tiny_model: Path) -> None:
    encoder = SparseEncoder.load(tiny_model)
    first = SlowNegatives(encoder, QueueSettings(size=4), ALONE)
    with torch.no_grad():
        encoder.model.cls.predictions.bias.add_(1.0)
    first.follow(encoder)
    first.push(_part(0, 3))
    second = SlowNegatives(SparseEncoder.load(tiny_model), QueueSettings(size=4), ALONE)
    second.load(dict(first.tensors()))
    for negatives in (first, second):
        negatives.follow(encoder)
        negatives.push(_part(1, 3))
    one, other = first.documents(), second.documents()
    assert one is not None
    assert other is not None
    assert torch.equal(one.dense(), other.dense())
