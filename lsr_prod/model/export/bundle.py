"""``export_bundle``: export a model as an ONNX bundle, which is compared with torch before it is published."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from lsr_prod.config import ExportSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.inference import BundleEncoder
from lsr_prod.logs import get_log
from lsr_prod.model import SparseEncoder, backbone, directory, model_digest, tokenizer_files
from lsr_prod.model.export.columns import check_lost, find_columns
from lsr_prod.model.export.graph import INPUTS, export_graph, halve_graph, largest_value, quantize_graph, save_graph
from lsr_prod.model.export.parity import check_parity, read_parity_texts, read_texts
from lsr_prod.storage import disk, drafts, folders, is_remote
from lsr_prod.storage.formats import bundle_format, digests
from lsr_prod.storage.formats.term_weights import QUERY_WEIGHTS_FILE, weights_to_bytes

log = get_log(__name__)


def export_bundle(settings: ExportSettings, options: dict[str, str] | None = None) -> Mapping[str, Any]:
    """Export a model, compare the result with torch, and move it to the output, a folder or a URI.

    An existing bundle of the same model, precision and top_k is compared again and kept.

    Args:
        settings: the section ``export``.
        options: options of the object store.

    Returns:
        bundle_digest, model_digest, precision, top_k, graph_bytes, parity_* and seconds.

    Raises:
        ConfigError: the model cannot be loaded, or the output has other content; nothing was written.
        StorageError: the store or the disk fails.
        ParityError: the graph ranks differently from torch; no bundle was written.
    """
    started = time.perf_counter()
    exists = folders.output_exists("export.output", settings.output, options)
    texts = read_parity_texts(settings.parity_texts, options)
    source = _open_model(settings.model, options)
    encoder = _load(settings.model, source)
    for side in (encoder, encoder.queries):
        if side is not None:
            _check_precision(settings.precision, side, texts)
    columns, cut = _columns(encoder, settings, texts, options)
    most = encoder.card.most_terms
    top_k = min(settings.top_k, most if columns is None else min(most, len(columns)))
    query_k = None if encoder.queries is None else min(settings.top_k, encoder.queries.card.most_terms)
    digest = _model_digest(source, encoder)
    min_overlap = _min_overlap(settings)
    if exists:
        folder, bundle = _open_same(settings.output, options, (digest, settings.precision, top_k, query_k, cut))
        parity = _check_parity(encoder, folder, texts, min_overlap)
    else:
        with directory.folder_to_save(settings.output, options, field="export.output") as folder:
            gpu = settings.precision == "fp16"
            graph = export_graph(encoder.document_encoder(), top_k=top_k, columns=columns, gpu=gpu)
            _write_bundle(folder, encoder, settings, graph, top_k=top_k, model=digest, cut=cut)
            parity = _check_parity(encoder, folder, texts, min_overlap)
            bundle = bundle_format.Bundle.load(folder)
    return {
        "bundle_digest": bundle.digest,
        "model_digest": digest,
        "precision": settings.precision,
        "top_k": top_k,
        "graph_bytes": sum(file.size for file in bundle.files if file.path.startswith(bundle_format.GRAPH_FILE)),
        **_query_figures(bundle),
        "cut_terms": cut.cut if cut else 0,
        "cut_terms_proven": cut.proven if cut else 0,
        **parity,
        "seconds": time.perf_counter() - started,
    }


def _check_parity(
    encoder: SparseEncoder, folder: Path, texts: Sequence[str], min_overlap: float
) -> dict[str, float | int]:
    """Compare the bundle with torch; a separate query encoder is compared on its own (``parity_query_*``)."""
    found = {"parity": check_parity(encoder, BundleEncoder(folder), texts, min_overlap=min_overlap)}
    if encoder.queries is not None:
        queries = BundleEncoder(folder, kind="query")
        found["parity_query"] = check_parity(encoder.queries, queries, texts, min_overlap=min_overlap)
    return {f"{side}_{name}": value for side, parity in found.items() for name, value in asdict(parity).items()}


def _query_figures(bundle: bundle_format.Bundle) -> dict[str, int]:
    if bundle.query is None:
        return {}
    prefix = f"{bundle_format.QUERY_FOLDER}/{bundle_format.GRAPH_FILE}"
    return {"query_graph_bytes": sum(file.size for file in bundle.files if file.path.startswith(prefix))}


def _check_precision(precision: str, encoder: SparseEncoder, texts: Sequence[str]) -> None:
    architecture = encoder.card.architecture
    if precision == "fp16" and encoder.card.appended_tokens:
        raise ConfigError("export.precision", "heads of appended tokens have no form in fp16", "take fp32 or int8")
    if precision == "fp16" and (backbone.is_causal(architecture) or architecture == "EuroBertForMaskedLM"):
        raise ConfigError(
            "export.precision",
            f"fp16 overflows in the norms of a {architecture} and is imprecise at late positions",
            "take fp32 or int8",
        )
    # The parity check would not notice: on a CPU, an fp16 graph computes in 32 bits.
    if precision == "fp16" and not (largest := largest_value(encoder, texts)) < 6e4:
        problem = f"fp16 ends at 65504, and values inside this model are up to {largest:.0f}"
        raise ConfigError("export.precision", problem, "take fp32 or int8")


def _min_overlap(settings: ExportSettings) -> float:
    least = {"fp32": settings.min_overlap, "fp16": settings.fp16_min_overlap, "int8": settings.int8_min_overlap}
    return least[settings.precision]


def _columns(
    encoder: SparseEncoder, settings: ExportSettings, texts: Sequence[str], options: dict[str, str] | None
) -> tuple[np.typing.NDArray[np.int64] | None, bundle_format.Cut | None]:
    """Return the terms to keep and the record of the cut; None without a probe. The parity texts validate the cut."""
    if settings.probe_texts is None:
        return None, None
    if encoder.card.head != "vocabulary":
        name = bundle_format.HEADS[encoder.card.head].partition(" (")[0]
        raise ConfigError(
            "export.probe_texts", f"a model with {name} has no vocabulary head whose terms could be cut", "leave it out"
        )
    columns, cut = find_columns(encoder, read_texts(settings.probe_texts, field="export.probe_texts", options=options))
    lost = check_lost(encoder, texts, columns, most=1 - settings.min_overlap)
    log.info("cut terms that no text of the probe activates", extra={"fields": {**asdict(cut), "lost": lost}})
    return columns, cut


def _write_bundle(
    folder: Path,
    encoder: SparseEncoder,
    settings: ExportSettings,
    graph: onnx.ModelProto,
    *,
    top_k: int,
    model: str,
    cut: bundle_format.Cut | None,
) -> None:
    _write_side(folder, encoder, settings.precision, graph)
    query = None
    if encoder.queries is not None:
        query = bundle_format.QueryGraph(min(settings.top_k, encoder.queries.card.most_terms), INPUTS)
        graph = export_graph(encoder.queries, top_k=query.top_k, columns=None, gpu=settings.precision == "fp16")
        (folder / bundle_format.QUERY_FOLDER).mkdir()
        _write_side(folder / bundle_format.QUERY_FOLDER, encoder.queries, settings.precision, graph)
    bundle = bundle_format.Bundle(
        files=bundle_format.digest_bundle(folder),
        precision=settings.precision,
        top_k=top_k,
        model_digest=model,
        inputs=INPUTS,
        cut=cut,
        query=query,
    )
    drafts.write_file(folder / bundle_format.BUNDLE_FILE, bundle.to_bytes())


def _write_side(folder: Path, encoder: SparseEncoder, precision: str, graph: onnx.ModelProto) -> None:
    match precision:
        case "int8":
            graph = quantize_graph(graph, folder)
        case "fp16":
            graph = halve_graph(graph)
    save_graph(graph, folder / bundle_format.GRAPH_FILE)
    tokenizer_files.write_tokenizer(folder, encoder.tokenizer, encoder.card.document_max_length)
    encoder.model.config.save_pretrained(folder)
    drafts.write_file(folder / bundle_format.VOCABULARY_FILE, digests.record_bytes(encoder.vocabulary))
    drafts.write_file(folder / bundle_format.CARD_FILE, encoder.card.to_bytes())
    if encoder.query_weights is not None and encoder.card.query_encoder == "learned":
        drafts.write_file(folder / QUERY_WEIGHTS_FILE, weights_to_bytes(encoder.query_weights.numpy()))


def _open_model(model: str, options: dict[str, str] | None) -> str:
    try:
        return folders.open_source(model, options)
    except ArtifactError as error:
        raise ConfigError("export.model", str(error), "give a model directory, a URI or a Hugging Face id") from error


def _load(model: str, source: str) -> SparseEncoder:
    try:
        encoder = SparseEncoder.load(source)
    except ConfigError as error:
        raise ConfigError("export.model", error.problem, error.remedy) from error
    for name, weight in encoder.named_parameters():
        if not weight.isfinite().all():  # the parity check would not notice: such terms have weight 0 in every text
            raise ConfigError("export.model", f"{model} has values in {name} that are not finite", "train it again")
    if encoder.card.query_encoder == "learned" and encoder.query_weights is None:
        raise ConfigError(
            "export.model",
            f"{model} has query_encoder learned, but its query weights were never trained",
            "train it with a finetune stage, or set query_encoder to idf",
        )
    return encoder


def _model_digest(source: str, encoder: SparseEncoder) -> str:
    """Return the digest of the model directory; another kind of folder is saved as one first."""
    if (Path(source) / bundle_format.CARD_FILE).is_file():
        return model_digest(Path(source))
    with disk.scratch_folder() as scratch:
        return encoder.save(scratch / "model")


def _open_same(
    output: str, options: dict[str, str] | None, wanted: tuple[str, str, int, int | None, bundle_format.Cut | None]
) -> tuple[Path, bundle_format.Bundle]:
    """Return the existing bundle; refuse another one and a damaged one."""
    try:
        folder, bundle = folders.open_bundle(output, options)
    except ArtifactError as error:
        local = not is_remote(output) and not (Path(output) / bundle_format.BUNDLE_FILE).is_file()
        problem = "has other content" if local else "is a damaged bundle"
        raise ConfigError("export.output", f"{output} {problem}", "name a folder that does not exist") from error
    query_k = bundle.query and bundle.query.top_k
    if (bundle.model_digest, bundle.precision, bundle.top_k, query_k, bundle.cut) != wanted:
        queries = f" (queries {query_k})" if query_k else ""
        raise ConfigError(
            "export.output",
            f"{output} holds another bundle, {bundle.precision} with top_k {bundle.top_k}{queries} of model "
            f"{bundle.model_digest[:12]}, {f'{bundle.cut.cut} terms cut' if bundle.cut else 'no terms cut'}",
            "name a folder that does not exist",
        )
    return folder, bundle
