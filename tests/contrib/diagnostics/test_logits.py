"""Statistics of logits against plain numpy."""

import numpy as np
import pytest
import torch

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod_contrib.diagnostics.logits import logit_statistics
from quickstart.models import model_folder

TEXTS = ["Locks and threads", "", "Parse a date string in a time zone", "Sort a list"]


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
    with pytest.raises(ConfigError, match="no text has a token"):
        logit_statistics(encoder, ["", " "])
