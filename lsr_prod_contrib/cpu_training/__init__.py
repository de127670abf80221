"""Attention and dropout for training on CPUs, faster and smaller than those of torch."""

from transformers import PreTrainedModel

from lsr_prod_contrib.cpu_training.attention import use_cpu_attention
from lsr_prod_contrib.cpu_training.dropout import use_cpu_dropout


def use_cpu_kernels(model: PreTrainedModel) -> None:
    """Make a model use both for training on a CPU, in place."""
    use_cpu_attention(model)
    use_cpu_dropout(model)
