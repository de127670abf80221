"""Names, weights and ramps; values are checked in test_regularizers and test_loss."""

import torch

from lsr_prod.config.objective import SparsitySettings
from lsr_prod.training.process_group import Shares
from lsr_prod.training.regularizers import Regularizers

V = 8
QUERIES, DOCUMENTS = torch.ones(2, V), torch.ones(4, V)
SHARES = Shares([2], [4])


def penalties(*regularizers: dict[str, object], **fields: object) -> Regularizers:
    sparsity = SparsitySettings.model_validate({"regularizers": list(regularizers)} | fields)
    return Regularizers(sparsity, vocabulary=["a"] * V, steps=100)


def test_regularizer_names_and_weights() -> None:
    found = penalties(
        {"regularizer": "flops", "query": 0.5, "document": 0.25, "ramp": "none"},
        {"regularizer": "joint_flops", "joint": 2.0, "ramp": "linear", "ramp_steps": 10},
        {"regularizer": "flops", "document": 4.0, "ramp": "quadratic", "ramp_share": 0.1, "l0_mask": V},
    ).values(QUERIES, DOCUMENTS, SHARES, 5)
    assert [(name, value.item(), weight) for name, value, weight in found] == [
        ("flops_query", V, 0.5),
        ("flops_document", V, 0.25),
        ("joint_flops", V, 1.0),
        ("flops_3_document", 0.0, 1.0),
    ]


def test_no_regularizers_give_no_values() -> None:
    nothing = penalties()
    nothing.observe(DOCUMENTS, 0)
    assert nothing.values(QUERIES, DOCUMENTS, SHARES, 0) == []
    assert nothing.state() == {}


def test_frequencies_count_masked_documents() -> None:
    """Terms that a mask takes away are in no document."""
    documents = torch.arange(1.0, V + 1).expand(4, V)
    weights = {}
    for keep in ("masked", "both"):
        counted = penalties({"regularizer": "df_flops", "document": 1.0}, keep_document=3, keep=keep)
        counted.observe(documents, 0)
        weights[keep] = counted.state()["df_flops.0.shares"].tolist()
    assert weights == {"masked": [0.0] * 5 + [1.0] * 3, "both": [1.0] * V}


def test_each_df_flops_regularizer_has_own_frequencies() -> None:
    slow = {"regularizer": "df_flops", "document": 1.0, "df_every": 2}
    fast = slow | {"df_every": 1}
    counted = penalties(slow, fast)
    counted.observe(DOCUMENTS, 0)
    counted.observe(0 * DOCUMENTS, 1)
    counted.observe(0 * DOCUMENTS, 2)
    state = counted.state()
    assert state["df_flops.0.shares"].tolist() == [0.5] * V  # steps 0 and 1
    assert state["df_flops.1.shares"].tolist() == [0.0] * V  # step 1
    restored = penalties(slow, fast)
    restored.load_state(state)
    assert all(torch.equal(restored.state()[key], value) for key, value in state.items())
