"""Reads of values by the host in a training step, in the form of a GPU."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lsr_prod.model import SparseEncoder, pooled_head
from lsr_prod.training.retrieval.trainer import Trainer
from tests.training.retrieval.test_trainer import ALONE, Rows, _settings

READS = ("aten._local_scalar_dense", "aten.nonzero.", "aten.unique", "aten.masked_select", "aten.equal.")


class _Reads(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(function).startswith(READS):
            self.found[str(function)] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.long
@pytest.mark.parametrize("chunk", [None, 3])
@pytest.mark.parametrize("pruned", [False, True])
def test_step_reads_a_fixed_number_of_values_and_none_of_its_result(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, chunk: int | None, pruned: bool
) -> None:
    monkeypatch.setattr(pooled_head, "are_free", lambda _: False)
    objective: dict[str, Any] = {"losses": [{"loss": "info_nce"}]}
    if pruned:
        objective["pruning"] = {"levels": [[3, 5]]}
    settings = _settings(
        batch={"queries": 4, "negatives": 1, "chunk": chunk}, objective=objective, dropout=0.0, watch={"every": 100}
    )
    trainer = Trainer(SparseEncoder.load(tiny_model), Rows(9), settings, ALONE)  # type: ignore[arg-type]
    trainer.train_step()
    lists: list[torch.Size] = []
    to_list = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda one: lists.append(one.shape) or to_list(one))
    with _Reads() as reads:
        result = trainer.train_step()
    batches = 2 if chunk is None else 2 + 3  # of 4 queries and 8 documents
    # The tokens of a step and the widths of chunks are read from tensors of the host. transformers looks at the mask
    # of every forward pass.
    on_host = 1 + (0 if chunk is None else batches)
    masks = batches * (1 if chunk is None else 2)
    assert sum(reads.found.values()) == on_host + masks, reads.found
    assert len(lists) == batches, "the head reads the numbers of active pairs, once per backward pass"
    values = (*result.losses.values(), result.grad_norm)
    assert len(lists) == batches + 1
    assert all(isinstance(value, float) for value in values)
