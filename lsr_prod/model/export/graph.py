"""ONNX graph of a bundle: backbone, vocabulary head, pooling and TopK; with fp32, fp16 or 8-bit weights."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from transformers import PreTrainedModel

from lsr_prod.model import SparseEncoder, backbone, pooling
from lsr_prod.model.export.head import MAXIMA, fold_weights, fuse_norms, rewrite_head
from lsr_prod.storage import disk

# Token types are not an input: they are zeros for a single text, which is the default of every architecture.
INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("terms", "weights")

_EXTERNAL_ABOVE = 1_900_000_000  # bytes; a protobuf is limited to 2 GiB


class _TopTerms(torch.nn.Module):
    """Maps ids and mask [B, L] to terms and weights [B, k].

    The graph has no loop over texts: it computes logits [B, L, V], and ``rewrite_head`` cuts them into blocks of terms.
    Heads of appended tokens compute logits [B, V].
    """

    def __init__(self, encoder: SparseEncoder, k: int) -> None:
        super().__init__()
        self.encoder, self.k, self.heads = encoder, k, encoder.heads

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, pooled = self.encoder.pooled_states(input_ids, attention_mask)
        assert self.encoder.card.activation != "relu"
        return self.heaviest(pooling.activate(self.maxima(states, pooled), pooled, self.encoder.card.activation))

    def maxima(self, states: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Return the largest logit of every row of the head, [B, V]."""
        if self.heads is not None:
            logits: torch.Tensor = self.heads(states, *self.layer())
            return logits
        # [B, L, d] -> [B, L, V]
        return torch.nn.functional.linear(pooling.fill_unpooled(states, pooled), *self.layer()).amax(dim=1)

    def layer(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        return backbone.output_layer(self.encoder.model)

    def heaviest(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heaviest, terms = weights.topk(self.k, dim=1)
        return terms, heaviest


class _TopOfRows(_TopTerms):
    """Variant that computes some rows of the head only: those that are folded into uncased terms, or those kept."""

    columns: torch.Tensor
    fold: torch.nn.Module
    rows: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, encoder: SparseEncoder, k: int, columns: np.typing.NDArray[np.int64] | None) -> None:
        super().__init__(encoder, k)
        kept = torch.arange(len(encoder.vocabulary)) if columns is None else torch.from_numpy(columns)
        rows, self.fold = (kept, torch.nn.Identity()) if encoder.uncased is None else encoder.uncased.restricted(kept)
        self.heads = None if encoder.heads is None else encoder.heads.restricted(rows)
        bias = backbone.output_layer(encoder.model)[1]
        self.register_buffer("columns", kept)
        self.register_buffer("rows", rows)
        self.register_buffer("bias", None if bias is None else bias.detach()[rows])

    def layer(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        # index_select always becomes a Gather in the graph; indexing may become a GatherND.
        return backbone.output_layer(self.encoder.model)[0].index_select(0, self.rows), self.bias

    def heaviest(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        places, heaviest = super().heaviest(self.fold(weights))
        return self.columns[places], heaviest


class _TopWeights(torch.nn.Module):
    """Variant for heads that are no vocabulary head, whose vectors [B, V] are cheap."""

    def __init__(self, encoder: SparseEncoder, k: int) -> None:
        super().__init__()
        self.encoder, self.k = encoder, k

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        heaviest, terms = self.encoder(input_ids, attention_mask).topk(self.k, dim=1)
        return terms, heaviest


def _module(encoder: SparseEncoder, k: int, columns: np.typing.NDArray[np.int64] | None) -> torch.nn.Module:
    if encoder.card.head != "vocabulary":
        return _TopWeights(encoder, k)
    some = encoder.uncased is not None or (encoder.heads is not None and columns is not None)
    return _TopOfRows(encoder, k, columns) if some else _TopTerms(encoder, k)


def export_graph(
    encoder: SparseEncoder, *, top_k: int, columns: np.typing.NDArray[np.int64] | None = None, gpu: bool = False
) -> onnx.ModelProto:
    """Return the encoder as an fp32 ONNX model with dynamic batch size and length; ``gpu``: its head is for GPUs.

    Returns:
        ``input_ids``, ``attention_mask`` int64 [B, L] -> ``terms`` int64 [B, k], ``weights`` float32 [B, k].
    """
    # Two rows of unequal length: with one row, or without padding, the exporter would fix these as constants.
    input_ids = torch.full((2, 8), encoder.model.config.pad_token_id or 0)
    attention_mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    input_ids[attention_mask > 0] = _any_token(encoder)
    module = _module(encoder, top_k, columns)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad(), _quiet_exporter(), _plain_attention(encoder.model):
        program = torch.onnx.export(
            module.eval(),
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
    if encoder.card.head == "vocabulary" and encoder.heads is None:
        rewrite_head(model, columns=columns if encoder.uncased is None else None, gpu=gpu)
    return model


def quantize_graph(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Quantize the weights of every matrix product to 8 bits; activations are quantized per batch at run time.

    Weights are quantized per output channel: in the vocabulary head a channel is a term, and rare terms are small.
    They are signed, as required by the dot products of bytes of the processor (VNNI). A processor without VNNI would
    saturate, so ONNX Runtime computes with unsigned weights there (``runtime``): slower, with the same vectors.
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
        use_external_data_format=_weight_bytes(folded) > _EXTERNAL_ABOVE,
    )
    quantized = onnx.load(target)
    for path in folder.glob("int8.onnx*"):
        path.unlink()
    _strip(quantized)
    return quantized


def halve_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convert to fp16 from the embeddings to the maxima over tokens; bias, activation and TopK stay in fp32.

    Token weights are converted to fp32 before their maxima are taken. A sparse autoencoder stays in fp32.
    """
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    halved = onnx.ModelProto()
    halved.CopyFrom(model)
    for i, node in enumerate(halved.graph.node):  # the converter selects nodes by name
        node.name = node.name or f"node_{i}"
    names = [node.name for node in halved.graph.node]
    nodes = list(halved.graph.node)
    after = [i + 1 for i, node in enumerate(nodes) if MAXIMA in node.output]
    scattered = [i for i, node in enumerate(nodes) if node.op_type == "ScatterElements"]  # of token weights
    last = [i for i, node in enumerate(nodes) if node.op_type in ("MatMul", "Gemm")][-1]  # of an autoencoder
    kept = names[(after or scattered or [last])[0] :]
    # The maximum of products: CUDA has it in 16 bits, and a cast of all logits would cost more than the maximum.
    blocked = [name for name in DEFAULT_OP_BLOCK_LIST if name != "Max"]
    converted: onnx.ModelProto = convert_float_to_float16(
        _typed(halved), keep_io_types=True, disable_shape_infer=True, op_block_list=blocked, node_block_list=kept
    )
    fuse_norms(converted)  # now: the converter does not know the type of a fused norm
    _strip(converted)
    return converted


def largest_value(encoder: SparseEncoder, texts: Sequence[str]) -> float:
    """Return the largest absolute value that a layer of the model reads or returns for some texts."""
    largest = torch.zeros(())

    def note(_: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal largest
        for value in (*inputs, output):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                largest = torch.maximum(largest, value.abs().amax())

    # Only of layers without inner ones: others also take masks, which have the smallest number of fp32.
    hooks = [one.register_forward_hook(note) for one in encoder.modules() if not any(one.children())]
    encoder.encode(texts, batch_size=8)
    for hook in hooks:
        hook.remove()
    return float(largest)


def save_graph(model: onnx.ModelProto, path: Path, *, external_above: int = _EXTERNAL_ABOVE) -> None:
    """Write the graph; weights go to ``<path>.data`` if the graph is larger than ``external_above`` bytes."""
    if _weight_bytes(model) > external_above:
        onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
    else:
        onnx.save_model(model, path)


def _weight_bytes(model: onnx.ModelProto) -> int:
    return sum(len(weight.raw_data) for weight in model.graph.initializer)  # no message above 2 GiB tells its size


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the graph with the type of every value; types of a graph above 2 GiB are inferred from a file."""
    with disk.scratch_folder() as folder:
        save_graph(model, folder / "graph.onnx", external_above=0)
        onnx.shape_inference.infer_shapes_path(str(folder / "graph.onnx"), str(folder / "typed.onnx"))
        return onnx.load(folder / "typed.onnx")


def _any_token(encoder: SparseEncoder) -> int:
    special = set(encoder.tokenizer.all_special_ids)
    return next(i for i in range(encoder.card.vocabulary_size) if i not in special)


def _strip(model: onnx.ModelProto) -> None:
    """Remove the call stacks and module paths that the exporter adds, and name the dynamic axes."""
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
    """Export attention as two products and a softmax: the fused form gives more nodes, with guards against NaN."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Suppress warnings of the exporter about itself, such as deprecations, in the log of a job."""
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
