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

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lsr_prod.inference.terms.term_reader import special_tokens
from lsr_prod.model.layout_reader import (
    ACTIVATIONS,
    DOCUMENT_FOLDER,
    ROUTER_FILE,
    SETTINGS_FILE,
    TRANSFORMER,
    TRANSFORMER_FILE,
    parts_folder,
)
from lsr_prod.model.output_layer import save_tensors
from lsr_prod.model.tokenizer_files import write_json, write_tokenizer
from lsr_prod.storage.formats.card import QUERY_FOLDER, EncoderCard

_POOLING_FOLDER = "1_SpladePooling"
_DOCUMENT = {DOCUMENT_FOLDER: "Transformer", "document_1_SpladePooling": "SpladePooling"}
_STATIC_FOLDER = "query_0_SparseStaticEmbedding"
_SEPARATE = {QUERY_FOLDER: "Transformer", f"{QUERY_FOLDER}/{_POOLING_FOLDER}": "SpladePooling"}
_SPARSE = "sentence_transformers.sparse_encoder.modules"
_TYPES = {
    "Router": "sentence_transformers.base.modules.router.Router",
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "SpladePooling": f"{_SPARSE}.splade_pooling.SpladePooling",
    "SparseStaticEmbedding": f"{_SPARSE}.sparse_static_embedding.SparseStaticEmbedding",
}


def write_layout(
    folder: Path,
    card: EncoderCard,
    tokenizer: PreTrainedTokenizerFast,
    query_weights: Tensor | None,
    queries: EncoderCard | None,
) -> None:
    """Write all files apart from weights and tokenizer in ``parts_folder``; ``queries`` is a separate query encoder."""
    router, parts = card.query_encoder != "model", parts_folder(folder)
    pooling = next(reversed(_DOCUMENT)) if router else _POOLING_FOLDER
    modules = {"": "Router"} if router else {"": "Transformer", pooling: "SpladePooling"}
    listed = enumerate(modules.items())
    named = [{"idx": i, "name": str(i), "path": path, "type": _TYPES[kind]} for i, (path, kind) in listed]
    write_json(folder / "modules.json", named)
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == card.activation)
    head = {"pooling_strategy": "max", "activation_function": activation, "embedding_dimension": card.vocabulary_size}
    write_json(folder / pooling / "config.json", head)
    lengths = {"query_length": card.query_max_length, "document_length": card.document_max_length}
    same = router or card.query_max_length == card.document_max_length
    write_json(parts / TRANSFORMER_FILE, {**TRANSFORMER, **({} if same else lengths)})
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
    write_json(folder / SETTINGS_FILE, settings)
    if card.inference_free:
        _write_router(folder, {_STATIC_FOLDER: "SparseStaticEmbedding"})
        _write_query_weights(folder / _STATIC_FOLDER, card, tokenizer, query_weights)
    elif router:
        _write_router(folder, _SEPARATE)


def _write_router(folder: Path, queries: dict[str, str]) -> None:
    """Write the routes: the folders of their modules, in order, and the classes of these."""
    router = {
        "types": {name: _TYPES[kind] for name, kind in {**queries, **_DOCUMENT}.items()},
        "structure": {"query": list(queries), "document": list(_DOCUMENT)},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    write_json(folder / ROUTER_FILE, router)


def _write_query_weights(
    folder: Path, card: EncoderCard, tokenizer: PreTrainedTokenizerFast, query_weights: Tensor | None
) -> None:
    """Write the weights of query terms, which are all 1 before training, and their tokenizer."""
    backend = tokenizer.backend_tokenizer
    write_json(folder / "config.json", {"frozen": False})
    # The library cuts queries without special tokens.
    write_tokenizer(folder, tokenizer, card.query_max_length - backend.num_special_tokens_to_add(False))
    weights = torch.ones(card.vocabulary_size) if query_weights is None else query_weights.clone()
    if card.query_special_tokens == "skipped":
        weights[sorted(number for number in special_tokens(backend) if number < len(weights))] = 0
    save_tensors(folder / "model.safetensors", {"weight": weights})
