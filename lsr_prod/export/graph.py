"""The graph of a bundle: backbone, vocabulary head, pooling and TopK in one ONNX model; fp32, fp16 or 8-bit weights."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lsr_prod.export.head import MAXIMA, fold_weights, rewrite_head
from lsr_prod.model import SparseEncoder, pooling
from lsr_prod.model.backbone import output_layer

__all__ = ["INPUTS", "export_graph", "halve_graph", "quantise_graph", "save_graph"]

# Token types are zeros for a single text, which every architecture takes for granted: they are no input.
INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("terms", "weights")

_EXTERNAL_ABOVE = 1_900_000_000  # bytes; a protobuf ends at 2 GiB


class _TopTerms(nn.Module):
    """[B, L] ids and mask -> [B, k] terms and weights.

    A graph has no loop over texts: it makes logits [B, L, V], and ``rewrite_head`` cuts their vocabulary.
    """

    def __init__(self, encoder: SparseEncoder, k: int) -> None:
        super().__init__()
        self.encoder, self.k = encoder, k

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        states, pooled = self.encoder.pooled_states(input_ids, attention_mask)
        logits = self.logits(pooling.fill_unpooled(states, pooled))  # [B, L, d] -> [B, L, V]
        return self.heaviest(pooling.activate(logits.amax(dim=1), pooled, self.encoder.card.activation))

    def logits(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, *output_layer(self.encoder.model))

    def heaviest(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        heaviest, terms = weights.topk(self.k, dim=1)
        return terms, heaviest


class _TopUncasedTerms(_TopTerms):
    """The same with uncased terms: of the head only those rows are there that become one of them."""

    columns: Tensor
    rows: Tensor
    bias: Tensor | None

    def __init__(self, encoder: SparseEncoder, k: int, columns: npt.NDArray[np.int64] | None) -> None:
        super().__init__(encoder, k)
        assert encoder.uncased is not None
        kept = torch.arange(len(encoder.vocabulary)) if columns is None else torch.from_numpy(columns)
        rows, self.fold = encoder.uncased.restricted(kept)
        bias = output_layer(encoder.model)[1]
        self.register_buffer("columns", kept)
        self.register_buffer("rows", rows)
        self.register_buffer("bias", None if bias is None else bias.detach()[rows])

    def logits(self, states: Tensor) -> Tensor:
        # A Gather in the graph, whatever the number of rows; an index may become a GatherND.
        weight = output_layer(self.encoder.model)[0].index_select(0, self.rows)
        return nn.functional.linear(states, weight, self.bias)

    def heaviest(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        places, heaviest = super().heaviest(self.fold(weights))
        return self.columns[places], heaviest


def export_graph(
    encoder: SparseEncoder, *, top_k: int, columns: npt.NDArray[np.int64] | None = None
) -> onnx.ModelProto:
    """The encoder as an fp32 ONNX model with free batch and length.

    Args:
        encoder: on the CPU, in fp32.
        top_k: terms of a vector, at most V, or as many as there are ``columns``.
        columns: int64, rising: terms of the vocabulary that the graph can return; default all.

    Returns:
        ``input_ids``, ``attention_mask`` int64 [B, L] -> ``terms`` int64 [B, k], ``weights`` float32 [B, k].
    """
    # Two rows of unequal length: an example of one row, or one without padding, would be burnt into the graph.
    input_ids = torch.full((2, 8), encoder.model.config.pad_token_id or 0)
    attention_mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    input_ids[attention_mask > 0] = _any_token(encoder)
    made = _TopTerms(encoder, top_k) if encoder.uncased is None else _TopUncasedTerms(encoder, top_k, columns)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), _quiet_exporter(), _plain_attention(encoder.model):
        program = torch.onnx.export(
            made.eval(),
            (input_ids, attention_mask),
            dynamo=True,
            dynamic_shapes=(axes, axes),
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            verbose=False,
        )
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _strip(model)
    rewrite_head(model, columns=columns if encoder.uncased is None else None)
    return model


def quantise_graph(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """8-bit weights for every matrix product; activations are quantised per batch at run time.

    Weights are quantised per output channel: in the vocabulary head a channel is a term, and rare terms are small.
    They are signed, which is what the processor's dot products of bytes (VNNI) take; a processor without them would
    saturate, so the runtime has ONNX Runtime compute with unsigned weights there (``runtime``): slower, same vectors.

    Args:
        model: what ``export_graph`` returned; it is left as it is.
        folder: an existing folder for the quantiser's files; it is left empty.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    fold_weights(folded)
    add_pre_process_metadata(folded)
    target = folder / "int8.onnx"
    quantize_dynamic(
        folded,
        target,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        use_external_data_format=folded.ByteSize() > _EXTERNAL_ABOVE,
    )
    quantised = onnx.load(target)
    for path in folder.glob("int8.onnx*"):
        path.unlink()
    _strip(quantised)
    return quantised


def halve_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """16-bit floats from the embeddings to the maxima over tokens; bias, activation and TopK stay in 32 bits.

    Args:
        model: what ``export_graph`` returned; it is left as it is.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    halved = onnx.ModelProto()
    halved.CopyFrom(model)
    for i, node in enumerate(halved.graph.node):  # the converter knows nodes by name
        node.name = node.name or f"node_{i}"
    names = [node.name for node in halved.graph.node]
    at = next(i for i, node in enumerate(halved.graph.node) if MAXIMA in node.output)
    converted: onnx.ModelProto = convert_float_to_float16(halved, keep_io_types=True, node_block_list=names[at + 1 :])
    _strip(converted)
    return converted


def save_graph(model: onnx.ModelProto, path: Path, *, external_above: int = _EXTERNAL_ABOVE) -> None:
    """Write one file; weights go to ``<path>.data`` if the whole is larger than ``external_above`` bytes."""
    if model.ByteSize() > external_above:
        onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
    else:
        onnx.save_model(model, path)


def _any_token(encoder: SparseEncoder) -> int:
    special = set(encoder.tokenizer.all_special_ids)
    return next(i for i in range(encoder.card.vocabulary_size) if i not in special)


def _strip(model: onnx.ModelProto) -> None:
    """Remove what the exporter notes about itself: call stacks and module paths, larger than a small model's graph."""
    graph = model.graph
    for part in (graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:], model.metadata_props[:]
    for value in graph.input:
        value.type.tensor_type.shape.dim[1].dim_param = "length"
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


@contextmanager
def _plain_attention(model: PreTrainedModel) -> Iterator[None]:
    """Export attention as two products and a softmax: the fused form becomes more nodes, with guards against NaN."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep the exporter's remarks about itself (absent torchvision, its own deprecations) out of a job's log."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
