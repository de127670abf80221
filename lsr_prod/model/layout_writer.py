"""Files with which sentence-transformers opens a model directory, and gives the same vectors.

A model that encodes queries is a transformer with SpladePooling. One with a separate query encoder, or with
inference-free queries, is a ``Router``: these two modules for documents, and for queries those of another model
directory, or one weight per token, ``SparseStaticEmbedding``::

    router_config.json
    document_0_Transformer/            weights and tokenizer
    document_1_SpladePooling/
    query/                             a separate query encoder
    query_0_SparseStaticEmbedding/     or the tokenizer again, with the length of queries, and the weights
"""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod.model import autoencoder, layout_reader, output_layer, static_queries, tokenizer_files
from lsr_prod.storage.formats.bundle_format import QUERY_FOLDER, EncoderCard

_POOLING_FOLDER = "1_SpladePooling"
_DOCUMENT = {layout_reader.DOCUMENT_FOLDER: "Transformer", "document_1_SpladePooling": "SpladePooling"}
_STATIC_FOLDER = "query_0_SparseStaticEmbedding"
_SEPARATE = {QUERY_FOLDER: "Transformer", f"{QUERY_FOLDER}/{_POOLING_FOLDER}": "SpladePooling"}
_SPARSE = "sentence_transformers.sparse_encoder.modules"
_TYPES = {
    "Router": "sentence_transformers.base.modules.router.Router",
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "SpladePooling": f"{_SPARSE}.splade_pooling.SpladePooling",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "SparseAutoEncoder": f"{_SPARSE}.sparse_auto_encoder.SparseAutoEncoder",
    "SparseStaticEmbedding": f"{_SPARSE}.sparse_static_embedding.SparseStaticEmbedding",
}


def write_layout(
    folder: Path,
    card: EncoderCard,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    query_weights: torch.Tensor | None,
    queries: EncoderCard | None,
) -> None:
    """Write all files apart from weights and tokenizer in ``parts_folder``; ``queries`` is a separate query encoder."""
    router, parts, head = card.query_encoder != "model", layout_reader.parts_folder(folder), _head(card, model)
    kinds = {path: kind for path, (kind, _) in head.items()}
    modules = {"": "Router"} if router else {"": "Transformer", **kinds}
    listed = enumerate(modules.items())
    named = [{"idx": i, "name": str(i), "path": path, "type": _TYPES[kind]} for i, (path, kind) in listed]
    tokenizer_files.write_json(folder / "modules.json", named)
    for path, (_, config) in head.items():
        tokenizer_files.write_json(folder / path / "config.json", config)
    lengths = {"query_length": card.query_max_length, "document_length": card.document_max_length}
    same = router or card.query_max_length == card.document_max_length
    transformer = layout_reader.DENSE_TRANSFORMER if card.head == autoencoder.AUTOENCODER else layout_reader.TRANSFORMER
    tokenizer_files.write_json(parts / layout_reader.TRANSFORMER_FILE, {**transformer, **({} if same else lengths)})
    if queries is not None:
        same = queries.query_max_length == queries.document_max_length
    reason = f"version {'5.4 has these modules' if same else '6 has a length of queries and one of documents'}"
    settings = {
        "model_type": "SparseEncoder",
        "prompts": {"query": (queries or card).query_prompt, "document": card.document_prompt},
        "default_prompt_name": None,
        "similarity_fn_name": "dot",
        # Checked since version 6.
        "requirements": {"sentence-transformers": {"specifier": ">=5.4" if same else ">=6.0", "reason": reason}},
    }
    tokenizer_files.write_json(
        folder / layout_reader.SETTINGS_FILE,
        settings | ({} if card.max_terms is None else {"max_active_dims": card.max_terms}),
    )
    if card.head == autoencoder.AUTOENCODER:
        autoencoder.save_autoencoder(folder / next(reversed(head)) / "model.safetensors", model)
    if card.inference_free:
        _write_router(folder, {_STATIC_FOLDER: "SparseStaticEmbedding"})
        _write_query_weights(folder / _STATIC_FOLDER, card, tokenizer, query_weights)
    elif router:
        _write_router(folder, _SEPARATE)


def _head(card: EncoderCard, model: PreTrainedModel) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return folder, class and settings of each module after the transformer, in order."""
    if card.head != autoencoder.AUTOENCODER:
        path = _POOLING_FOLDER if card.query_encoder == "model" else next(reversed(_DOCUMENT))
        activation = next(theirs for theirs, ours in layout_reader.ACTIVATIONS.items() if ours == card.activation)
        size = card.vocabulary_size
        head = {"pooling_strategy": "max", "activation_function": activation, "embedding_dimension": size}
        return {path: ("SpladePooling", head)}
    width = int(model.config.hidden_size)
    mode = next(theirs for theirs, ours in layout_reader.POOLED_STATES.items() if ours == card.pooled_states)
    layer = {
        "input_dim": width,
        "hidden_dim": card.vocabulary_size,
        "k": card.most_terms,
        "k_aux": min(512, card.vocabulary_size),
        "normalize": card.state_scaling in ("variance", "both"),
    }
    modules: dict[str, tuple[str, dict[str, Any]]] = {
        "1_Pooling": ("Pooling", {"embedding_dimension": width, "pooling_mode": mode})
    }
    if card.state_scaling in ("length", "both"):
        modules["2_Normalize"] = ("Normalize", {})
    modules[f"{len(modules) + 1}_SparseAutoEncoder"] = ("SparseAutoEncoder", layer)
    return modules


def _write_router(folder: Path, queries: dict[str, str]) -> None:
    """Write the routes: the folders of their modules, in order, and the classes of these."""
    router = {
        "types": {name: _TYPES[kind] for name, kind in {**queries, **_DOCUMENT}.items()},
        "structure": {"query": list(queries), "document": list(_DOCUMENT)},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    tokenizer_files.write_json(folder / layout_reader.ROUTER_FILE, router)


def _write_query_weights(
    folder: Path, card: EncoderCard, tokenizer: PreTrainedTokenizerFast, query_weights: torch.Tensor | None
) -> None:
    """Write the weights of query terms, and their tokenizer."""
    tokenizer_files.write_json(folder / "config.json", {"frozen": False})
    # The library cuts queries without special tokens.
    tokenizer_files.write_tokenizer(folder, tokenizer, card.query_max_length - tokenizer.num_special_tokens_to_add())
    weights = static_queries.static_weights(card, tokenizer, query_weights)
    output_layer.save_tensors(folder / "model.safetensors", {"weight": weights})
