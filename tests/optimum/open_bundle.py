"""Open a bundle with optimum and compare it with our runtime: ``python tests/optimum/open_bundle.py BUNDLE``.

Runs in the environment of ``requirements/optimum.txt``, separate from the project's: optimum needs transformers 4.
"""

import json
import sys
from pathlib import Path

import numpy as np
from optimum.onnxruntime import ORTModelForCustomTasks
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[2]))

from lsr_prod.inference import BundleEncoder

TEXTS = [
    "learned sparse retrieval",
    "a much longer sentence, so that the batch is padded and the mask matters to the shorter ones",
    "Zürich und 東京",
]
TOLERANCE = 1e-5


def main(folder: Path) -> int:
    ours = BundleEncoder(folder)
    expected = ours.encode(TEXTS, kind="document")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = ORTModelForCustomTasks.from_pretrained(folder, provider="CPUExecutionProvider")
    prompted = [ours.card.prompt("document") + text for text in TEXTS]
    tokens = tokenizer(prompted, padding=True, truncation=True, return_tensors="pt")
    output = model(**{name: tokens[name] for name in ours.bundle.inputs})
    difference = 0.0
    for i, (terms, weights) in enumerate(zip(output["terms"].numpy(), output["weights"].numpy(), strict=True)):
        theirs = dict(zip(terms[weights > 0].tolist(), weights[weights > 0].tolist(), strict=True))
        own = dict(zip(*(part.tolist() for part in expected.row(i)), strict=True))
        difference = max(difference, *(abs(theirs.get(t, 0.0) - own.get(t, 0.0)) for t in theirs.keys() | own.keys()))
    opened = len(expected.terms) > 0 and bool(np.isfinite(difference)) and difference <= TOLERANCE
    print(f"RESULT {json.dumps({'texts': len(TEXTS), 'terms': len(expected.terms), 'max_difference': difference})}")
    return 0 if opened else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
