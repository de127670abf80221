"""Diagnostics against plain numpy on logits and vectors that are small enough to check by hand."""

import numpy as np
import pytest
import torch

from lsr_prod.evaluation.diagnostics import logit_statistics, postings_lengths, term_count_std, term_scores
from lsr_prod.formats.sparse import SparseBatch
from lsr_prod.model import SparseEncoder
from quickstart.models import model_folder

TEXTS = ["Locks and threads", "", "Parse a date string in a time zone", "Sort a list"]
VECTORS = SparseBatch(
    np.array([0, 2, 3, 3, 5], np.int64), np.array([1, 3, 1, 1, 0], np.int32), np.array([4, 1, 2, 3, 1], np.float32)
)


@pytest.fixture(scope="module")
def encoder() -> SparseEncoder:
    return SparseEncoder.load(model_folder("splade-tiny"))


def test_logit_statistics_equal_plain_numpy(encoder: SparseEncoder):
    logits = []
    for text in TEXTS:
        ids = encoder.tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits.append(encoder.model(ids).logits[0, 1:-1].numpy())  # without [CLS] and [SEP]
    every = np.concatenate(logits).astype(np.float64)  # [tokens, V]
    pooled = [np.sort(one.max(axis=0))[::-1] for one in logits if len(one)]

    found = logit_statistics(encoder, TEXTS, topk=(10, 0))

    assert found.tokens == len(every)
    assert found.logit_std == pytest.approx(every.std(axis=0).mean(), rel=1e-4)
    assert found.non_negative_mean == pytest.approx((every >= 0).sum(axis=1).mean())
    assert found.non_negative_std == pytest.approx((every >= 0).sum(axis=1).std())
    assert found.document_mean[10] == pytest.approx(np.mean([one[:10].mean() for one in pooled]), rel=1e-4)
    assert found.document_mean[0] == pytest.approx(np.mean([one.mean() for one in pooled]), rel=1e-4)
    assert found.document_std[10] == pytest.approx(np.mean([one[:10].std() for one in pooled]), rel=1e-4)


def test_logit_statistics_of_empty_texts_are_refused(encoder: SparseEncoder):
    with pytest.raises(ValueError, match="no text has a token"):
        logit_statistics(encoder, ["", " "])


def test_postings_lengths_count_empty_lists():
    found = postings_lengths(VECTORS, 5)  # lists of 1, 3, 0, 1 and 0 documents
    assert (found.mean, found.variance) == (pytest.approx(1.0), pytest.approx(1.2))
    assert found.std == pytest.approx(1.2**0.5)


def test_term_count_std_counts_empty_texts():
    assert term_count_std(VECTORS) == pytest.approx(np.std([2, 1, 0, 2]))


def test_term_scores_leave_out_rare_terms():
    assert term_scores(VECTORS, min_documents=3).std == pytest.approx(np.std([4, 2, 3]))
    assert term_scores(VECTORS, min_documents=3).terms == 1
    assert term_scores(VECTORS, min_documents=1).std == pytest.approx(np.std([4, 2, 3]) / 3)
    assert term_scores(VECTORS, min_documents=4) == type(term_scores(VECTORS, min_documents=4))(0.0, 0)
