"""Rewriting of the vocabulary head of an exported graph into a cheaper form with the same vectors.

The exporter writes ``ReduceMax(MatMul(hidden, weight) + bias)`` over logits [B, L, V], which exceed every cache; a head
without bias has no addition. Here the columns of the weight are cut into blocks: [B, L, block] stays in the cache
until its maximum is taken, and the bias is added once to [B, V]. Both steps are exact, including rounding: adding a
constant and rounding never change an order. Columns that no text activates can be left out; a final ``Gather`` maps the
remaining columns to their term ids.

For a GPU the blocks are large, and their columns a multiple of what its matrix units take. ONNX Runtime's maximum over
an axis copies its operand to 32 bits there, in a quarter of the time of the graph. So every eighth token goes into a
product of its own, and the maximum of the eight products is taken element by element; an axis of an eighth is left.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

BLOCK = 1008
"""Columns of a block: 2 MB of logits for a batch of 512 tokens. Not a power of two: the maximum reads a column, whose
values would be 4,096 bytes apart, in the same set of the L1 cache, and took 4 times as long (docs/log.md)."""

GPU_BLOCK = 8192
_GPU_PARTS = 8  # products per block
_MULTIPLE = 8  # columns of a block on a GPU

MAXIMA = "head_max"
"""Name of the maxima of the logits over the tokens, without bias, in a rewritten graph."""

_REARRANGING = ("Transpose", "Gather", "Split", "Reshape")


@dataclass(frozen=True, slots=True)
class VocabularyHead:
    """Nodes and weights of the head in a graph."""

    hidden: str  # name of its input states, [B, L, d]
    product: onnx.NodeProto  # the MatMul
    addition: onnx.NodeProto | None  # the Add of the bias, or None
    maximum: onnx.NodeProto  # the ReduceMax over the tokens
    top: onnx.NodeProto  # the TopK
    weight: np.typing.NDArray[np.float32]  # float32 [d, V]
    bias: np.typing.NDArray[np.float32] | None  # float32 [V], or None


def find_head(model: onnx.ModelProto) -> VocabularyHead:
    """Find the head in a graph as the exporter writes it."""
    makers = {name: node for node in model.graph.node for name in node.output}
    (top,) = (node for node in model.graph.node if node.op_type == "TopK")
    constants = {weight.name: weight for weight in model.graph.initializer}
    for maximum in (node for node in model.graph.node if node.op_type == "ReduceMax"):
        addition, bias, product = None, None, makers.get(maximum.input[0])
        if product is not None and product.op_type == "Add" and product.input[1] in constants:
            addition, bias = product, numpy_helper.to_array(constants[product.input[1]])
            product = makers.get(addition.input[0])
        if product is None or product.op_type != "MatMul":
            continue
        return VocabularyHead(
            product.input[0], product, addition, maximum, top, _constant(model, product.input[1]), bias
        )
    raise ValueError("the exported graph has no ReduceMax over a vocabulary head")


def rewrite_head(
    model: onnx.ModelProto, *, columns: np.typing.NDArray[np.int64] | None = None, block: int = BLOCK, gpu: bool = False
) -> None:
    """Cut the head into blocks, in place; ``gpu``: in the form for GPUs, with blocks of ``GPU_BLOCK``."""
    head, graph = find_head(model), model.graph
    kept = np.arange(head.weight.shape[1]) if columns is None else columns
    spare = -len(kept) % _MULTIPLE if gpu else 0  # columns that are computed again, and dropped
    computed = np.concatenate([kept, kept[:1].repeat(spare)])
    block = GPU_BLOCK if gpu else block
    sizes = np.full(-(-len(computed) // block), block, np.int64)
    sizes[-1] = len(computed) - block * (len(sizes) - 1)

    def constant(name: str, array: np.typing.NDArray[np.generic]) -> str:
        graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    weight, nodes = head.product.input[1], []
    if columns is not None or spare:
        nodes.append(helper.make_node("Gather", [weight, constant("head_computed", computed)], ["head_weight"], axis=1))
        weight = "head_weight"
    names = [f"head_block_{i}" for i in range(len(sizes))]
    nodes.append(helper.make_node("Split", [weight, constant("head_sizes", sizes)], names, axis=1))
    tokens = constant("head_tokens", np.array([1], np.int64))
    states = _every_eighth(head.hidden, nodes, constant) if gpu else [head.hidden]
    for name in names:
        products = [f"{name}_logits_{i}" for i in range(len(states))]
        for state, product in zip(states, products, strict=True):
            nodes.append(helper.make_node("MatMul", [state, name], [product]))
        if gpu:
            nodes.append(helper.make_node("Max", products, [f"{name}_largest"]))
            products = [f"{name}_largest"]
        nodes.append(helper.make_node("ReduceMax", [*products, tokens], [f"{name}_max"], keepdims=0))
    joined = f"{MAXIMA}_all" if spare else MAXIMA
    nodes.append(helper.make_node("Concat", [f"{name}_max" for name in names], [joined], axis=1))
    if spare:
        ends = [constant(f"head_{name}", np.array([at], np.int64)) for name, at in (("from", 0), ("to", len(kept)))]
        nodes.append(helper.make_node("Slice", [joined, *ends, tokens], [MAXIMA]))
    if head.bias is None:
        nodes.append(helper.make_node("Identity", [MAXIMA], [head.maximum.output[0]]))
    else:
        bias = constant("head_bias", np.ascontiguousarray(head.bias[kept]))
        nodes.append(helper.make_node("Add", [MAXIMA, bias], [head.maximum.output[0]]))
    at = list(graph.node).index(head.product)
    for old in (head.product, head.addition, head.maximum):
        if old is not None:
            graph.node.remove(old)
    for offset, node in enumerate(nodes):
        graph.node.insert(at + offset, node)
    if columns is not None:
        places = f"{head.top.output[1]}_places"
        constant("head_columns", kept)
        terms = helper.make_node("Gather", ["head_columns", places], [head.top.output[1]], axis=0)
        head.top.output[1] = places
        graph.node.append(terms)
    drop_unused(model)


def _every_eighth(
    hidden: str, nodes: list[onnx.NodeProto], constant: Callable[[str, np.typing.NDArray[np.generic]], str]
) -> list[str]:
    """Add nodes that select tokens 0, 8, ..., tokens 1, 9, ... and so on; the last token stands for missing ones."""
    zero, one, parts = (constant(f"head_{n}", np.array(n, np.int64)) for n in (0, 1, _GPU_PARTS))
    less = constant("head_less", np.array(_GPU_PARTS - 1, np.int64))
    nodes.append(helper.make_node("Shape", [hidden], ["head_shape"], start=1, end=2))
    for kind, inputs, output in (
        ("Squeeze", ["head_shape"], "head_length"),
        ("Sub", ["head_length", one], "head_last"),
        ("Add", ["head_length", less], "head_rounded"),
        ("Div", ["head_rounded", parts], "head_steps"),
        ("Range", [zero, "head_steps", one], "head_numbers"),
        ("Mul", ["head_numbers", parts], "head_firsts"),
    ):
        nodes.append(helper.make_node(kind, inputs, [output]))
    states = [f"head_states_{i}" for i in range(_GPU_PARTS)]
    for i, name in enumerate(states):
        at = constant(f"{name}_first", np.array(i, np.int64))
        nodes.append(helper.make_node("Add", ["head_firsts", at], [f"{name}_any"]))
        nodes.append(helper.make_node("Min", [f"{name}_any", "head_last"], [f"{name}_places"]))
        nodes.append(helper.make_node("Gather", [hidden, f"{name}_places"], [name], axis=1))
    return states


def fuse_norms(model: onnx.ModelProto) -> None:
    """Join, in place, a bias, the addition of the residual, and the layer norm after it: one kernel on a GPU."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    readers = Counter(name for node in graph.node for name in node.input)
    constants = {weight.name: len(weight.dims) for weight in graph.initializer}
    for norm in [node for node in graph.node if node.op_type == "LayerNormalization" and len(node.input) == 3]:
        total = makers.get(norm.input[0])
        if total is None or total.op_type != "Add" or readers[norm.input[0]] > 1:
            continue
        for first, residual in (total.input, total.input[::-1]):
            biased = makers.get(first)
            if biased is None or biased.op_type != "Add" or readers[first] > 1 or constants.get(biased.input[1]) != 1:
                continue
            if residual in constants:
                continue
            inputs = [biased.input[0], residual, *norm.input[1:], biased.input[1]]
            epsilon = next(helper.get_attribute_value(one) for one in norm.attribute if one.name == "epsilon")
            fused = helper.make_node(
                "SkipLayerNormalization", inputs, [norm.output[0]], domain="com.microsoft", epsilon=epsilon
            )
            graph.node.insert(list(graph.node).index(norm), fused)
            for old in (norm, total, biased):
                graph.node.remove(old)
            break
    if not any(one.domain == "com.microsoft" for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def fold_weights(model: onnx.ModelProto) -> None:
    """Compute, in place, the nodes that only rearrange weights: the quantizer skips products with a computed weight."""
    graph = model.graph
    for node in list(graph.node):
        constants = {weight.name for weight in graph.initializer}
        if node.op_type in _REARRANGING and constants.issuperset(node.input):
            for name, array in zip(node.output, _rearranged(model, node), strict=True):
                graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
            graph.node.remove(node)
    drop_unused(model)


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove weights that no node reads."""
    used = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    for weight in [weight for weight in model.graph.initializer if weight.name not in used]:
        model.graph.initializer.remove(weight)


def _constant(model: onnx.ModelProto, name: str) -> np.typing.NDArray[np.float32]:
    """Return the value of a weight, or of a node that rearranges a weight."""
    for weight in model.graph.initializer:
        if weight.name == name:
            value: np.typing.NDArray[np.float32] = numpy_helper.to_array(weight)
            return value
    for node in model.graph.node:
        if name in node.output and node.op_type in _REARRANGING:
            return _rearranged(model, node)[list(node.output).index(name)]
    raise ValueError(f"{name} is not a constant of the exported graph")


def _rearranged(model: onnx.ModelProto, node: onnx.NodeProto) -> list[np.typing.NDArray[np.float32]]:
    first, *others = (_constant(model, name) for name in node.input)
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type == "Transpose":
        return [first.transpose(attributes["perm"])]
    if node.op_type == "Reshape":  # of the rows of a Gather; the exporter computes it for few rows
        return [first.reshape(others[0])]
    if node.op_type == "Gather":
        return [np.take(first, others[0].astype(np.int64), axis=attributes.get("axis", 0))]
    return np.split(first, np.cumsum(others[0].astype(np.int64))[:-1], axis=attributes.get("axis", 0))
