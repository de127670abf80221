"""CSPLADE (papers/csplade): adaptation of a decoder, its attention, and the head's scale between the two."""

from typing import Any

from benchmarks.results.claims import Claim, Family
from benchmarks.results.material import Material
from benchmarks.results.runs import Chain
from benchmarks.results.stages import calibrate, finetune, rescale


def family(material: Material) -> Family:
    """The decoder stand-in, with each attention."""
    adapt: dict[str, Any] = {
        "stage": "adapt_causal", "data": {"paths": ["none"], "kind": "texts"}, "relu_weight": 1, "steps": 100,
        "batch": {"texts": 16}, "max_length": 128, "seed": 0, "dropout": 0.0, "scale": {"precision": "bf16"},
        "optimizer": {"learning_rate": 3e-4, "schedule": "cosine", "warmup_share": 0.1},
    }  # fmt: skip
    sized = (rescale(material), calibrate(0.02, material))

    def attention(kind: str) -> dict[str, Any]:
        return {"stage": "set_encoder", "attention": kind}

    rows = {
        "untrained, causal": Chain("decoder", ()),
        "causal": Chain("decoder", (adapt, *sized, attention("causal"), finetune(steps=200))),
        "bidirectional": Chain("decoder", (adapt, attention("bidirectional"), *sized, finetune(steps=200))),
        "echo": Chain("decoder", (adapt, attention("echo"), *sized, finetune(steps=200))),
        "bidirectional, not adapted": Chain("decoder", (attention("bidirectional"), *sized, finetune(steps=200))),
        "bidirectional, neither rescaled nor calibrated": Chain(
            "decoder", (adapt, attention("bidirectional"), finetune(steps=200))
        ),
        "encoder stand-in (uncased BERT), 200 steps": Chain("uncased", (finetune(steps=200),)),
    }
    claims = [
        Claim("bidirectional is ahead of causal attention", "bidirectional", "causal"),
        Claim("echo is at least as good as bidirectional attention", "echo", "bidirectional"),
        Claim("adaptation helps", "bidirectional", "bidirectional, not adapted"),
        Claim(
            "rescaling and calibration between adaptation and fine-tuning help (ours)",
            "bidirectional", "bidirectional, neither rescaled nor calibrated",
        ),
    ]  # fmt: skip
    return Family("causal", "Causal language models", TEXT, rows, claims, frozenset({"untrained, causal"}))


TEXT = """Stand-in: the Llama of 4 x 256, trained from random weights for minutes, in place of 1B and 8B models. InfoNCE
over 24 documents at chance is ln 24 = 3.18."""
