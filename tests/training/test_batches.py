import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.training.batches import make_batch, pad, spread
from lsr_prod.training.data.training_set import Example, text_keys


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def example(row: int, negatives: int, *, scores: bool = False) -> Example:
    """A query and documents that say which row and document they are, of different lengths."""
    documents = tuple(ids(100 * row + place, *range(1, 2 + (row + place) % 11)) for place in range(1 + negatives))
    marks = np.array([100 * row + place for place in range(1 + negatives)], np.float32)
    return Example(ids(row, *range(1, 2 + row % 5)), documents, marks if scores else None)


def names(batch: torch.Tensor) -> list[int]:
    return batch[:, 0].tolist()


@given(st.lists(st.lists(st.integers(0, 99), max_size=30), min_size=1, max_size=9), st.integers(0, 3))
def test_pad_keeps_tokens_and_masks_padding(texts: list[list[int]], pad_id: int):
    batch = pad([ids(*text) for text in texts], pad_id)
    width = batch.input_ids.shape[1]
    assert width % 8 == 0
    assert width - 8 < max(1, *map(len, texts)) <= width if len(texts) > 1 else width >= len(texts[0])
    assert batch.input_ids.dtype == batch.attention_mask.dtype == torch.int64
    assert batch.input_ids.tolist() == [text + [pad_id] * (width - len(text)) for text in texts]
    assert batch.attention_mask.tolist() == [[1] * len(text) + [0] * (width - len(text)) for text in texts]


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    negatives=st.integers(0, 6),
    seed=st.integers(0, 2**31),
    step=st.integers(0, 10**6),
    scores=st.booleans(),
)
@settings(max_examples=60)
def test_make_batch_has_positive_sampled_negatives_and_scores(
    counts: list[int], negatives: int, seed: int, step: int, scores: bool
):
    rows = np.arange(len(counts)) + 3
    examples = [example(int(row), count, scores=scores) for row, count in zip(rows, counts, strict=True)]
    batch = make_batch(examples, rows, negatives=negatives, seed=seed, step=step, pad_id=0)
    assert names(batch.queries.input_ids) == rows.tolist()
    width = 1 + negatives
    present = np.ones((len(rows), width), bool) if batch.present is None else batch.present.numpy()
    assert (batch.present is None) == (min(counts) >= negatives)
    documents = np.zeros(present.shape, int)
    documents[present] = names(batch.documents.input_ids)
    for row, count, drawn, is_present in zip(rows.tolist(), counts, documents.tolist(), present.tolist(), strict=True):
        assert drawn[0] == 100 * row
        places = [name - 100 * row for name in drawn[1:] if name]
        assert all(1 <= place <= count for place in places)
        assert len(set(places)) == len(places) == min(count, negatives)  # none is repeated
        assert is_present == [place <= count for place in range(width)]
    if scores:
        assert batch.scores is not None
        assert batch.scores.dtype == torch.float32
        assert batch.scores.tolist() == documents.tolist()
    else:
        assert batch.scores is None


@given(st.integers(1, 5), st.integers(0, 1000))
@settings(max_examples=30)
def test_sample_of_row_does_not_depend_on_other_rows(workers: int, step: int):
    rows = np.random.default_rng(step).permutation(500)[:16]
    examples = [example(int(row), 2 + int(row) % 7) for row in rows]
    whole = make_batch(examples, rows, negatives=3, seed=1, step=step, pad_id=0)
    shares = np.array_split(np.arange(16), workers)
    parts = [
        make_batch([examples[i] for i in share], rows[share], negatives=3, seed=1, step=step, pad_id=0)
        for share in shares
    ]
    drawn = [name for part in parts for name in names(part.documents.input_ids)]
    assert drawn == names(whole.documents.input_ids)


def test_samples_are_uniform_and_differ_by_step_and_seed():
    rows, one = np.arange(200), [example(row, 4) for row in range(200)]

    def places(seed: int, step: int) -> np.ndarray:
        batch = make_batch(one, rows, negatives=1, seed=seed, step=step, pad_id=0)
        return np.array(names(batch.documents.input_ids)).reshape(-1, 2)[:, 1] % 100

    drawn = np.stack([places(0, step) for step in range(50)])
    shares = np.bincount(drawn.ravel(), minlength=5)[1:] / drawn.size
    assert np.abs(shares - 0.25).max() < 5 * (0.25 * 0.75 / drawn.size) ** 0.5
    assert 0.2 < (places(0, 0) == places(0, 1)).mean() < 0.3 + 0.1
    assert (places(0, 0) == places(1, 0)).mean() < 0.4
    np.testing.assert_array_equal(places(0, 7), places(0, 7))


def test_rows_without_negatives_have_positive_only():
    rows = np.array([4, 5])
    examples = [example(4, 0), example(5, 3)]
    batch = make_batch(examples, rows, negatives=0, seed=0, step=0, pad_id=0)
    assert names(batch.documents.input_ids) == [400, 500]
    batch = make_batch(examples, rows, negatives=2, seed=0, step=0, pad_id=0)
    assert batch.present.tolist() == [[True, False, False], [True, True, True]]
    assert names(batch.documents.input_ids)[:2] == [400, 500]
    none = make_batch(examples[:1], rows[:1], negatives=2, seed=0, step=0, pad_id=0)
    assert names(none.documents.input_ids) == [400]
    assert none.present.tolist() == [[True, False, False]]
    with pytest.raises(ValueError, match="1 examples for 2 rows"):
        make_batch(examples[:1], rows, negatives=0, seed=0, step=0, pad_id=0)


def test_make_batch_accepts_no_rows():
    batch = make_batch([], np.empty(0, np.int64), negatives=2, seed=0, step=0, pad_id=0)
    assert len(batch.queries.input_ids) == len(batch.documents.input_ids) == 0


def test_spread_puts_zero_vectors_at_missing_places():
    documents = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    present = torch.tensor([[True, False], [True, True]])
    rows = spread(documents, present)
    assert rows.tolist() == [[1, 2], [0, 0], [3, 4], [5, 6]]
    (rows * torch.arange(4.0)[:, None]).sum().backward()
    assert documents.grad.tolist() == [[0, 0], [2, 2], [3, 3]]
    assert spread(documents, None) is documents


def test_batch_has_keys_of_its_texts_and_of_known_positives():
    rows = np.array([4, 5, 6])
    examples = [example(int(row), 3) for row in rows]
    asked = []

    def known(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(queries)
        return np.array([0, 2]), np.array([77, 78])

    arguments = {"negatives": 2, "seed": 0, "step": 3, "pad_id": 0}
    batch = make_batch(examples, rows, **arguments, known_positives=known)
    assert batch.keys is not None
    assert batch.keys.queries.tolist() == text_keys([one.query for one in examples]).tolist() == asked[0].tolist()
    documents = {int(text[0]): text for one in examples for text in one.documents}
    drawn = [documents[name] for name in names(batch.documents.input_ids)]
    assert batch.keys.documents.tolist() == text_keys(drawn).tolist()
    assert (batch.keys.owners.tolist(), batch.keys.positives.tolist()) == ([0, 2], [77, 78])
    assert make_batch(examples, rows, **arguments).keys is None
