"""Precision of training (ours): products in bf16 against products in fp32."""

from benchmarks.results.claims import Claim, Family
from benchmarks.results.material import Material
from benchmarks.results.runs import Chain
from benchmarks.results.stages import finetune


def family(_: Material) -> Family:
    """The uncased stand-in, trained alike in both precisions."""
    rows = {f"in {one}": Chain("uncased", ({**finetune(), "scale": {"precision": one}},)) for one in ("fp32", "bf16")}
    return Family("precision", "Precision of training", TEXT, rows, [Claim("fp32 is ahead of bf16", *rows)])


TEXT = """Stand-in: the uncased BERT. Both rows have the same seeds and batches; products are in bf16 or fp32, weights
and sums in fp32 (`scale.precision`). The models are evaluated in fp32. The rows of the families above were trained in
bf16. With three seeds more (`--seeds 6`) the difference is +.003 (p .29, detectable .009)."""
