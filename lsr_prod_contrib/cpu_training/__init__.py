"""Training on CPUs: attention and dropout that are faster and smaller than those of torch, and less memory."""

from transformers import PreTrainedModel

from lsr_prod_contrib.cpu_training.attention import use_cpu_attention
from lsr_prod_contrib.cpu_training.dropout import use_cpu_dropout
from lsr_prod_contrib.cpu_training.memory import Recomputation, return_free_memory

__all__ = ["Recomputation", "return_free_memory", "use_cpu_kernels"]


def use_cpu_kernels(model: PreTrainedModel) -> None:
    """Make a model use both for training on a CPU, in place."""
    use_cpu_attention(model)
    use_cpu_dropout(model)
