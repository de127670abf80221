"""Fine-tuning of a head of token weights (BGE-M3): loss and gradient of the plain formula, whole and in chunks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.model import SparseEncoder
from lsr_prod.training.batches import TrainBatch, pad
from lsr_prod.training.objective import TrainingObjective
from lsr_prod.training.process_group import Group
from lsr_prod.training.replica import Replica
from lsr_prod.training.retrieval.gradient import StepPlan, backward
from tests.model.bge_m3 import SENTENCES, bge_m3_folder

GROUP = Group(0, 1, torch.device("cpu"))


@pytest.mark.parametrize("chunk", [None, 2])
def test_gradient_equals_plain_pytorch(tmp_path: Path, chunk: int | None) -> None:
    encoder = SparseEncoder.load(bge_m3_folder(tmp_path / "bge"))
    ids = [np.array(encoder.tokenizer(text)["input_ids"], np.int32) for text in SENTENCES]
    queries, documents = pad([one[[0, 2, 3, -1]] for one in ids], 1), pad(ids, 1)
    objective = ObjectiveSettings.model_validate({"losses": [{"loss": "info_nce"}]})
    loss = TrainingObjective(objective, vocabulary=encoder.vocabulary, steps=10)
    plan = StepPlan(GROUP, chunk, bf16=False, seed=0)
    replica = Replica(encoder, "ddp", GROUP)
    (found,) = backward(replica, loss, [TrainBatch(queries, documents, None)], step=1, plan=plan, negatives=None)
    gradients = {name: p.grad.clone() for name, p in encoder.model.named_parameters() if p.grad is not None}
    encoder.zero_grad()
    vectors = []
    for batch in (queries, documents):
        states = encoder.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        values = torch.relu(encoder.model.sparse_linear(states)[..., 0])
        rows = torch.zeros(len(values), len(values[0]), len(encoder.vocabulary))
        rows = rows.scatter(2, batch.input_ids[..., None], values[..., None])  # [B, L, V], as FlagEmbedding trains
        kept = torch.ones(len(encoder.vocabulary))
        kept[:4] = 0
        vectors.append(rows.amax(dim=1) * kept)
    expected = torch.nn.functional.cross_entropy(vectors[0] @ vectors[1].T, torch.arange(len(ids)))
    expected.backward()
    assert float(found.terms.parts["total"]) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert "sparse_linear.weight" in gradients
    for name, parameter in encoder.model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)
