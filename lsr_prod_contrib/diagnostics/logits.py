"""Raw logits of single tokens before pooling (esplade-pretraining, tables 6 and 7).

They tell how a pre-trained head will behave in fine-tuning: in the paper, models whose ``document_mean`` at 10 is below
0 lost all terms.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lsr_prod.errors import ConfigError
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import output_layer


@dataclass(frozen=True, slots=True)
class LogitStatistics:
    """Statistics of the logits of single tokens, special tokens excluded (esplade-pretraining, tables 6 and 7)."""

    tokens: int  # number of tokens
    # standard deviation of the logits of each output term over all tokens, averaged over terms
    # (``logit-score-std``)
    logit_std: float
    non_negative_mean: float  # mean over tokens of the number of terms with a logit of 0 or more
    non_negative_std: float  # its standard deviation
    # k to the mean of the k largest pooled logits of a document, averaged over documents; k of 0 means all terms
    # (``doc-score-avg``)
    document_mean: dict[int, float]
    document_std: dict[int, float]  # k to their standard deviation, averaged over documents (``doc-score-std``)


@torch.no_grad()
def logit_statistics(
    encoder: SparseEncoder, texts: Sequence[str], *, topk: Sequence[int] = (10, 100, 0)
) -> LogitStatistics:
    """Compute the statistics of the logits of documents; memory is that of one [L, V] tensor.

    Raises:
        ConfigError: no text has a token.
    """
    matrix, bias = output_layer(encoder.model)
    sums = torch.zeros(2, len(matrix), dtype=torch.float64)
    counts: list[Tensor] = []
    means: dict[int, list[Tensor]] = {k: [] for k in topk}
    stds: dict[int, list[Tensor]] = {k: [] for k in topk}
    for states in _token_states(encoder, texts):  # [L, d] of one text
        logits = states @ matrix.T if bias is None else torch.addmm(bias, states, matrix.T)  # [L, V]
        sums += torch.stack([logits.sum(dim=0), logits.square().sum(dim=0)]).double().cpu()
        counts.append((logits >= 0).sum(dim=1).cpu())
        pooled = logits.amax(dim=0).sort(descending=True).values
        for k in topk:
            kept = pooled[:k] if k else pooled
            means[k].append(kept.mean().cpu())
            stds[k].append(kept.std(correction=0).cpu())
    if not counts:
        raise ConfigError("--texts", "no text has a token", "give texts with words of the model's vocabulary")
    positive = torch.cat(counts).double()
    first, second = sums / len(positive)
    return LogitStatistics(
        tokens=len(positive),
        logit_std=float((second - first.square()).clamp(min=0).sqrt().mean()),
        non_negative_mean=float(positive.mean()),
        non_negative_std=float(positive.std(correction=0)),
        document_mean={k: float(torch.stack(values).mean()) for k, values in means.items()},
        document_std={k: float(torch.stack(values).mean()) for k, values in stds.items()},
    )


def _token_states(encoder: SparseEncoder, texts: Sequence[str]) -> Iterator[Tensor]:
    """Yield the inputs of the output matrix at the tokens of each text, special tokens excluded, [L, d]."""
    rows = encoder.tokenizer(
        [encoder.card.document_prompt + text for text in texts],
        truncation=True,
        max_length=encoder.card.document_max_length,
        return_special_tokens_mask=True,
    )
    for ids, special in zip(rows["input_ids"], rows["special_tokens_mask"], strict=True):
        if not all(special):
            tokens = torch.tensor([ids], device=encoder.model.device)
            states, pooled = encoder.pooled_states(tokens, torch.ones_like(tokens))
            kept = pooled[0] & ~torch.tensor(special, dtype=torch.bool, device=pooled.device)[-pooled.shape[1] :]
            yield states[0][kept]
