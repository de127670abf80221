"""``export_bundle``: a model becomes an ONNX bundle, checked against torch before it gets its name."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.config import ExportSettings
from lsr_prod.export.graph import INPUTS, export_graph, quantise_graph
from lsr_prod.formats.bundle import GRAPH_FILE, TOKENIZER_FILE, Bundle, write_vocabulary
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.directory import draft_folder, move_into_place

__all__ = ["export_bundle"]

log = logging.getLogger(__name__)


def export_bundle(settings: ExportSettings) -> Mapping[str, Any]:
    """Export."""
    started = time.perf_counter()
    output = Path(settings.output)
    encoder = SparseEncoder.load(settings.model)
    top_k = min(settings.top_k, encoder.card.vocabulary_size)
    with draft_folder(output) as draft:
        graph = draft / GRAPH_FILE
        export_graph(encoder, graph, top_k=top_k)
        if settings.precision == "int8":
            quantise_graph(graph, graph)
        encoder.tokenizer.backend_tokenizer.save(str(draft / TOKENIZER_FILE))
        encoder.model.config.save_pretrained(draft)
        write_vocabulary(draft, encoder.vocabulary)
        encoder.card.save(draft)
        bundle = Bundle.seal(
            draft,
            precision=settings.precision,
            top_k=top_k,
            model_digest=model_digest(Path(settings.model)),
            inputs=INPUTS,
        )
        move_into_place(draft, output, field="export.output")
    return {"bundle_digest": bundle.digest, "precision": settings.precision, "seconds": time.perf_counter() - started}
