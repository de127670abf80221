"""Objectives that together use every setting, for the tests that any loss has to pass."""

from typing import Any

INFO_NCE: dict[str, Any] = {"loss": "info_nce"}


def _losses(*losses: dict[str, Any]) -> dict[str, Any]:
    return {"losses": list(losses)}


def _regularized(regularizer: dict[str, Any], **sparsity: Any) -> dict[str, Any]:
    return _losses(INFO_NCE) | {"sparsity": {"regularizers": [{"ramp": "none"} | regularizer], **sparsity}}


EVERYTHING: dict[str, Any] = {
    "losses": [
        {"loss": "info_nce", "similarity": "both", "temperature": 2.0, "margin": 0.1},
        {"loss": "info_nce", "in_batch": False, "weight": 0.5},
        {"loss": "n_pair", "similarity": "both"},
        {"loss": "margin_mse", "weight": 0.1},
        {"loss": "kl", "similarity": "both", "temperature": 3.0},
    ],
    "queue": {"size": 5, "terms": 4},
    "sparsity": {
        "regularizers": [
            {"regularizer": "flops", "query": 0.1, "document": 0.2, "l0_mask": 14, "ramp": "quadratic"},
            {"regularizer": "joint_flops", "joint": 1.0, "ramp": "linear"},
            {"regularizer": "l1", "query": 0.1, "document": 0.1, "ramp": "none"},
            {"regularizer": "df_flops", "query": 0.3, "document": 0.4, "ramp": "none"},
            {"regularizer": "cased", "query": 0.01, "document": 0.02, "ramp": "none"},
            {"regularizer": "flops", "document": 0.3, "ramp": "quadratic", "ramp_steps": 3},
        ],
        "keep_query": 10,
        "keep_document": 12,
        "keep": "both",
    },
    "pruning": {"levels": [[3, 5], [0, 4]], "weight": 0.7, "gradient": "straight_through"},
    "overlap": {"qk": 5, "dk": 7, "weight": 0.6},
}

OBJECTIVES: dict[str, dict[str, Any]] = {
    "info_nce": _losses({"loss": "info_nce", "temperature": 0.5, "margin": 0.2}),
    "info_nce_cosine": _losses({"loss": "info_nce", "similarity": "cosine", "cosine_temperature": 0.2}),
    "info_nce_both": _losses({"loss": "info_nce", "similarity": "both"}),
    "info_nce_own_negatives": _losses({"loss": "info_nce", "similarity": "both", "in_batch": False}),
    "info_nce_queue": _losses(INFO_NCE) | {"queue": {"size": 5, "terms": 4}},
    "n_pair": _losses({"loss": "n_pair"}),
    "n_pair_both": _losses({"loss": "n_pair", "similarity": "both"}),
    "margin_mse": _losses({"loss": "margin_mse"}),
    "kl": _losses({"loss": "kl", "temperature": 2.0}),
    "kl_both": _losses({"loss": "kl", "similarity": "both"}),
    "two_losses": _losses({"loss": "margin_mse", "weight": 0.3}, {"loss": "info_nce", "weight": 2.0}),
    "flops": _regularized({"regularizer": "flops", "query": 0.5, "document": 0.7}),
    "flops_l0_mask": _regularized({"regularizer": "flops", "query": 0.5, "document": 0.7, "l0_mask": 15}),
    "joint_flops": _regularized({"regularizer": "joint_flops", "joint": 2.0}),
    "off_diagonal": _regularized({"regularizer": "joint_flops", "joint": 2.0, "estimator": "off_diagonal"}),
    "off_diagonal_masked": _regularized(
        {"regularizer": "joint_flops", "joint": 2.0, "estimator": "off_diagonal"}, keep_query=5, keep_document=6
    ),
    "l1": _regularized({"regularizer": "l1", "query": 0.5, "document": 0.7}),
    "l1_l0_mask": _regularized({"regularizer": "l1", "query": 0.5, "document": 0.7, "l0_mask": 15}),
    "df_flops": _regularized({"regularizer": "df_flops", "query": 0.5, "document": 2.0, "df_beta": 2.0}),
    "cased": _regularized({"regularizer": "cased", "query": 0.05, "document": 0.07}),
    "masked": _regularized({"regularizer": "flops", "document": 1.0, "l0_mask": 4}, keep_query=5, keep_document=6),
    "masked_documents": _regularized({"regularizer": "joint_flops", "joint": 1.0}, keep_document=6),
    "masked_pruned": _regularized({"regularizer": "cased", "query": 0.1}, keep_query=5, keep_document=6)
    | {"pruning": {"levels": [[3, 4], [0, 9], [9, 0]]}, "overlap": {"overlap_threshold": 1.0}},
    "both": _regularized({"regularizer": "df_flops", "document": 1.0}, keep_query=5, keep="both"),
    "pruned": _losses({"loss": "n_pair"}) | {"pruning": {"levels": [[5, 10]]}},
    "pruned_levels": _losses({"loss": "info_nce", "similarity": "both"}, {"loss": "kl"})
    | {"pruning": {"levels": [[2, 3], [0, 4], [5, 0], [0, 0]], "weight": 0.5}},
    "pruned_through": _losses({"loss": "info_nce", "similarity": "both"}, {"loss": "kl"})
    | {"pruning": {"levels": [[2, 3], [0, 4], [5, 0]], "gradient": "straight_through"}},
    "pruned_by_threes": _losses({"loss": "info_nce", "similarity": "both"}, {"loss": "margin_mse"})
    | {"pruning": {"levels": [[2, 3], [4, 0], [11, 12]], "gradient": "straight_through", "candidates": 3}},
    "pruned_masked": _losses({"loss": "info_nce", "similarity": "cosine"})
    | {
        "pruning": {"levels": [[2, 3], [4, 5]], "gradient": "straight_through"},
        "sparsity": {"keep_query": 7, "keep_document": 9},
    },
    "co_occurrence": _losses(INFO_NCE) | {"overlap": {"overlap_threshold": 1.0}},
    "co_occurrence_pruned": _losses(INFO_NCE) | {"overlap": {"qk": 5, "dk": 10, "softness": 0.1, "weight": 2.0}},
    "jaccard": _losses(INFO_NCE) | {"overlap": {"term": "jaccard", "dk": 9}},
    "everything": EVERYTHING,
    "everything_masked": EVERYTHING | {"sparsity": EVERYTHING["sparsity"] | {"keep": "masked"}},
}
