"""Head rescaling (papers/head-rescaling): a head whose rows are as large as those of ModernBERT."""

from typing import Any

from benchmarks.results.claims import Claim, Family
from benchmarks.results.material import Material
from benchmarks.results.runs import Chain
from benchmarks.results.stages import finetune, rescale


def family(material: Material) -> Family:
    """The uncased stand-in, its head multiplied by eight, then divided again or not."""
    larger: dict[str, Any] = {"stage": "rescale_head", "alpha": 1 / 8}
    rows = {
        "head as it is": Chain("uncased", (finetune(),)),
        "head x 8": Chain("uncased", (larger, finetune())),
        "head x 8, alpha 8": Chain("uncased", (larger, {"stage": "rescale_head", "alpha": 8.0}, finetune())),
        "head x 8, alpha auto": Chain("uncased", (larger, rescale(material), finetune())),
    }
    claims = [
        Claim("dividing the head recovers the model", "head x 8, alpha 8", "head x 8"),
        Claim("auto recovers the model (ours)", "head x 8, alpha auto", "head x 8"),
    ]
    return Family("rescaling", "Head rescaling", TEXT, rows, claims)


TEXT = """Stand-in: the uncased BERT with its output matrix multiplied by eight. "alpha 8" restores the matrix, so its
row must equal "head as it is"; what is measured is the harm of a large head and whether `auto` finds a good
constant without being told."""
