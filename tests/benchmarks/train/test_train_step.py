from typing import Any

import pytest
import torch

from benchmarks.train.train_step import TINY, make_model, ratios, run_worker
from benchmarks.train.train_step_worker import ENGINES, draw

SPEC: dict[str, Any] = {
    "V": 300,
    "L": 12,
    "pairs": 5,
    "seed": 1,
    "steps": 1,
    "threads": 1,
    "memory_bytes": 10**9,
    "precision": "auto",
}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, active = make_model(tmp_path_factory.mktemp("model"), SPEC, TINY, "converged")
    assert 0.005 < active < 0.01
    return {**SPEC, "model": str(folder)}


@pytest.mark.filterwarnings("ignore")  # the peer's own
def test_every_engine_minimises_the_same_loss(spec: dict[str, Any]) -> None:
    batches = draw(spec), draw({**spec, "seed": 2})
    made = {}
    for engine, chunk, kept in (
        ("ours", None, None),
        ("ours", None, 1),
        ("ours", 2, None),
        ("peer", None, None),
        ("peer", None, 0),
        ("peer", 2, None),
    ):
        model, make = ENGINES[engine]({**spec, "chunk": chunk, "kept_layers": kept, "checkpointed": kept is not None})
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):  # its masks are drawn in another order
                module.p = 0.0
        loss = make(batches)()
        gradients = {name.split("model.", 1)[-1]: value.grad for name, value in model.named_parameters()}
        made[engine, chunk, kept] = loss, {name.split("model.")[-1]: gradient for name, gradient in gradients.items()}
    loss, gradients = made["peer", None, None]
    assert any(gradient.abs().max() > 1e-6 for gradient in gradients.values())
    for other, found in made.values():
        assert other == pytest.approx(loss, abs=1e-5)
        assert found.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.long
def test_a_measurement_and_one_that_does_not_fit(spec: dict[str, Any]) -> None:
    measured = run_worker(spec, "ours")
    assert len(measured["seconds"]) == 1
    assert measured["peak_bytes"] > 0
    assert run_worker({**spec, "pairs": 200, "memory_bytes": 1 << 20}, "ours") == {"out_of_memory": True}


def _one(steps: float, peak: float) -> dict[str, Any]:
    return {"steps_per_s": steps, "peak_mb": peak, "cpu_s_per_step": 2 / steps}


def test_ratios_are_to_the_smallest_and_the_fastest_peer_that_ran() -> None:
    engines = {"ours, checkpointed": _one(3.0, 10.0), "ours": _one(9.0, 1.0)}
    peers = {"SpladeLoss": _one(2.0, 80.0), "cached 32": _one(1.0, 40.0), "cached 8": _one(0.5, 20.0)}
    peers["SpladeLoss, bf16"] = _one(0.75, 50.0)
    found = ratios({**engines, **peers})
    assert {name: value for name, value in found.items() if "like" not in name} == {
        "memory_ratio_bf16": 0.02,
        "cpu_ratio_bf16": 12.0,
        "peak_memory_ratio": 0.125,
        "peak_memory_ratio_cached": 0.25,
        "peak_memory_ratio_cached_8": 0.5,
        "steps_per_s_ratio": 1.5,
        "cpu_ratio": 1.5,
    }
    assert ratios({**engines, **peers, "SpladeLoss": {}})["peak_memory_ratio"] is None
    assert ratios({**engines, **peers, "SpladeLoss": {}})["steps_per_s_ratio"] == 3.0
    assert set(ratios({"ours": {}}).values()) == {None}


def test_headline_ratios_are_the_worse_of_both_like_pairings() -> None:
    engines = {"ours": _one(4.0, 30.0), "ours, checkpointed": _one(3.0, 20.0), "ours, two passes": _one(2.0, 5.0)}
    peers = {"SpladeLoss": _one(2.0, 90.0), "SpladeLoss, checkpointed": _one(1.0, 80.0), "cached 32": _one(0.5, 10.0)}
    found = ratios({**engines, **peers})
    assert (found["memory_ratio_like_plain"], found["cpu_ratio_like_plain"]) == (0.333, 2.0)
    assert (found["memory_ratio_like_checkpointed"], found["cpu_ratio_like_checkpointed"]) == (0.25, 3.0)
    assert (found["memory_ratio_like"], found["cpu_ratio_like"]) == (0.333, 2.0)


def test_cached_loss_takes_the_place_of_a_peer_that_does_not_fit() -> None:
    engines = {"ours": _one(4.0, 30.0), "ours, two passes": _one(2.0, 5.0)}
    found = ratios({**engines, "SpladeLoss": {}, "cached 32": _one(0.5, 10.0)})
    assert (found["memory_ratio_like_plain"], found["cpu_ratio_like_plain"]) == (0.5, 4.0)
