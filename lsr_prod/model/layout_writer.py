"""Files with which sentence-transformers opens a model directory, and gives the same vectors.

A model that encodes queries is a transformer with SpladePooling. One with inference-free queries is a ``Router``: these
two modules for documents, and for queries one weight per token, ``SparseStaticEmbedding``::

    router_config.json
    document_0_Transformer/            weights and tokenizer
    document_1_SpladePooling/
    query_0_SparseStaticEmbedding/     the tokenizer again, with the length of queries, and the weights
"""

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from lsr_prod.inference.terms.term_reader import special_tokens
from lsr_prod.model.layout_reader import ACTIVATIONS, ROUTER_FILE, SETTINGS_FILE, TRANSFORMER, TRANSFORMER_FILE
from lsr_prod.model.output_layer import save_tensors
from lsr_prod.model.tokenizer_files import write_json, write_tokenizer
from lsr_prod.storage.formats.card import EncoderCard

DOCUMENT_FOLDER = "document_0_Transformer"
"""Folder of weights and tokenizer in a model directory of inference-free queries."""

_QUERY_FOLDER, _POOLING_FOLDER = "query_0_SparseStaticEmbedding", "document_1_SpladePooling"
_SPARSE = "sentence_transformers.sparse_encoder.modules"
_TYPES = {
    "Router": "sentence_transformers.base.modules.router.Router",
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "SpladePooling": f"{_SPARSE}.splade_pooling.SpladePooling",
    "SparseStaticEmbedding": f"{_SPARSE}.sparse_static_embedding.SparseStaticEmbedding",
}


def parts_folder(folder: Path) -> Path:
    """Return the folder of weights and tokenizer of a model directory, or of another folder of a model."""
    inner = folder / DOCUMENT_FOLDER
    return inner if inner.is_dir() else folder


def write_layout(
    folder: Path, card: EncoderCard, tokenizer: PreTrainedTokenizerFast, query_weights: Tensor | None
) -> None:
    """Write all files apart from weights and tokenizer in ``parts_folder``."""
    router, parts = card.inference_free, parts_folder(folder)
    pooling = _POOLING_FOLDER if router else "1_SpladePooling"
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
    reason = f"version {'5.4 has these modules' if same else '6 has a length of queries and one of documents'}"
    settings = {
        "model_type": "SparseEncoder",
        "prompts": {"query": card.query_prompt, "document": card.document_prompt},
        "default_prompt_name": None,
        "similarity_fn_name": "dot",
        # Checked since version 6.
        "requirements": {"sentence-transformers": {"specifier": ">=5.4" if same else ">=6.0", "reason": reason}},
    }
    write_json(folder / SETTINGS_FILE, settings)
    if router:
        _write_queries(folder, card, tokenizer, query_weights)


def _write_queries(
    folder: Path, card: EncoderCard, tokenizer: PreTrainedTokenizerFast, query_weights: Tensor | None
) -> None:
    """Write the router and the weights of query terms, which are all 1 before training."""
    structure = {"query": [_QUERY_FOLDER], "document": [DOCUMENT_FOLDER, _POOLING_FOLDER]}
    names = [name for route in structure.values() for name in route]
    router = {
        "types": {name: _TYPES[name.rpartition("_")[2]] for name in names},
        "structure": structure,
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    write_json(folder / ROUTER_FILE, router)
    queries, backend = folder / _QUERY_FOLDER, tokenizer.backend_tokenizer
    write_json(queries / "config.json", {"frozen": False})
    # The library cuts queries without special tokens.
    length = card.query_max_length - backend.num_special_tokens_to_add(False)
    write_tokenizer(queries, tokenizer, length)
    weights = torch.ones(card.vocabulary_size) if query_weights is None else query_weights.clone()
    if card.query_special_tokens == "skipped":
        weights[sorted(number for number in special_tokens(backend) if number < len(weights))] = 0
    save_tensors(queries / "model.safetensors", {"weight": weights})
