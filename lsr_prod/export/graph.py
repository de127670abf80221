"""The graph of a bundle: backbone, vocabulary head, pooling and TopK in one ONNX file."""

import logging
import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from lsr_prod.model import SparseEncoder

__all__ = ["INPUTS", "export_graph", "quantise_graph"]

log = logging.getLogger(__name__)

# Token types are zeros for a single text, which every architecture takes for granted: they are no input.
INPUTS = ("input_ids", "attention_mask")


class _TopTerms(nn.Module):
    def __init__(self, encoder: SparseEncoder, k: int) -> None:
        super().__init__()
        self.encoder, self.k = encoder, k

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        weights, terms = self.encoder(input_ids, attention_mask).topk(self.k, dim=1)
        return terms, weights


def export_graph(encoder: SparseEncoder, path: Path, *, top_k: int) -> None:
    """Write the encoder as one fp32 ONNX file with free batch and length.

    Args:
        encoder: on the CPU, in fp32.
        path: the file.
        top_k: terms of a vector, at most V.
    """
    # Two rows of unequal length: an example of one row, or one without padding, would be burnt into the graph.
    input_ids = torch.full((2, 8), encoder.model.config.pad_token_id or 0)
    attention_mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    input_ids[attention_mask > 0] = int(encoder.tokenizer.convert_tokens_to_ids(encoder.vocabulary[-1]) or 0)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _TopTerms(encoder, top_k).eval(),
            (input_ids, attention_mask),
            path,
            dynamo=True,
            dynamic_shapes=(axes, axes),
            input_names=list(INPUTS),
            output_names=["terms", "weights"],
            external_data=False,
            verbose=False,
        )


def quantise_graph(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8)
