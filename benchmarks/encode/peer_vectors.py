"""Vectors of a peer for the quality of the encoding benchmark.

    python -m benchmarks.encode.peer_vectors SPEC.json OUTPUT.npz

Runs in the environment of optimum. SPEC.json is a spec of ``benchmarks.encode.worker`` with ``documents`` and
``queries``, lists of texts. OUTPUT has ``<side>_rows``, ``<side>_terms`` and ``<side>_weights``, one entry per active
term.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

from benchmarks.encode.worker import open_peer


def main(spec_file: str, output: str) -> None:
    """Encode both sides."""
    spec: dict[str, Any] = json.loads(Path(spec_file).read_bytes())
    model = open_peer(spec)
    arrays: dict[str, Any] = {}
    for side, encode in (("documents", model.encode_document), ("queries", model.encode_query)):
        found = encode(spec[side], batch_size=spec["batch"], show_progress_bar=False).cpu().coalesce()
        arrays[f"{side}_rows"], arrays[f"{side}_terms"] = found.indices().numpy()
        arrays[f"{side}_weights"] = found.values().float().numpy()
    np.savez(output, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:3])
