"""What a chain knows of its model before anything runs: read from the start, then changed by each stage that it checks.

A stage late in a chain meets a model that does not exist yet. Its settings are held against what the stages before it
will leave.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from lsr_prod.errors import ConfigError
from lsr_prod.formats.card import Attention
from lsr_prod.model import SparseEncoder
from lsr_prod.model.backbone import is_causal, output_layer
from lsr_prod.model.card_update import longest_input
from lsr_prod.model.uncased import letters_of
from lsr_prod.terms.surfaces import notation_of

__all__ = ["TRANSFER_FILE", "ModelFacts", "check_length"]

TRANSFER_FILE = "vocabulary_transfer.json"
"""In a model directory: which tokens a transfer of its vocabulary made anew, ``{"new": [token ids]}``."""

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model is, weights apart.

    Attributes:
        architecture: class name, for example ``BertForMaskedLM``.
        kind: masked or causal language model.
        vocabulary_size: V, the output terms; at most, where a stage counts them only when it runs.
        vocabulary_sha256: of the output terms, as in the card; None: known only when the stage that makes them ran.
        hidden_size: d, the width of the output matrix [V, d].
        has_bias: the output matrix has a bias.
        tied: the output matrix is that of the token embeddings.
        output_vocabulary: the tokenizer's tokens, or words of their own.
        casing: as in the card.
        attention: as in the card.
        query_max_length: tokens of a query, special tokens included.
        document_max_length: tokens of a document.
        longest_input: tokens that the model takes at most.
        shortest_input: tokens that an input has at least, one of them no special token.
        roles: special tokens that the tokenizer has: of bos, eos, unk, sep, pad, cls, mask.
        linear_modules: names of the backbone's linear modules, the last part each.
        transferred: a transfer of the vocabulary left a record of the new tokens with the model.
        token_head: those words are tokens of another tokenizer, which cannot be looked up in a text.
        query_encoder: as in the card.
        query_prompt: as in the card.
        letters: a ``vocabulary_sha256`` and which letters its terms have, see ``letters_of``.
    """

    architecture: str
    kind: Literal["masked", "causal"]
    vocabulary_size: int
    vocabulary_sha256: str | None
    hidden_size: int
    has_bias: bool
    tied: bool
    output_vocabulary: Literal["tokenizer", "words"]
    casing: Literal["none", "lowercase"]
    attention: Attention
    query_max_length: int
    document_max_length: int
    longest_input: int
    shortest_input: int
    roles: frozenset[str]
    linear_modules: frozenset[str]
    transferred: bool
    token_head: bool = False
    query_encoder: Literal["model", "idf"] = "model"
    query_prompt: str = ""
    letters: tuple[str, frozenset[str]] | None = None

    @classmethod
    def of(cls, encoder: SparseEncoder, folder: Path | None = None) -> "ModelFacts":
        """Those of a model that is there.

        Args:
            encoder: the model.
            folder: its model directory, for what lies beside it; None: it has none yet.
        """
        weight, bias = output_layer(encoder.model)
        card, tokenizer = encoder.card, encoder.tokenizer
        modules = encoder.model.base_model.named_modules()
        return cls(
            architecture=card.architecture,
            kind="causal" if is_causal(card.architecture) else "masked",
            vocabulary_size=card.vocabulary_size,
            vocabulary_sha256=card.vocabulary_sha256,
            hidden_size=weight.shape[1],
            has_bias=bias is not None,
            tied=weight is encoder.model.get_input_embeddings().weight,
            output_vocabulary=card.output_vocabulary,
            casing=card.casing,
            attention=card.attention,
            query_max_length=card.query_max_length,
            document_max_length=card.document_max_length,
            longest_input=longest_input(encoder.model.config, card.attention),
            shortest_input=tokenizer.num_special_tokens_to_add() + 1,
            roles=frozenset(role for role in _ROLES if getattr(tokenizer, f"{role}_token", None) is not None),
            linear_modules=frozenset(
                name.rpartition(".")[2] for name, module in modules if isinstance(module, nn.Linear)
            ),
            transferred=folder is not None and (folder / TRANSFER_FILE).is_file(),
            token_head=card.output_vocabulary == "words" and notation_of(encoder.vocabulary) != "words",
            query_encoder=card.query_encoder,
            query_prompt=card.query_prompt,
            letters=(card.vocabulary_sha256, letters_of(encoder.vocabulary)),
        )


def check_length(name: str, value: int | None, facts: ModelFacts) -> None:
    """Refuse a number of tokens that the model does not take; None, the card's own, always fits.

    Raises:
        ConfigError: it names the setting ``name``.
    """
    if value is not None and not facts.shortest_input <= value <= facts.longest_input:
        raise ConfigError(
            name,
            f"{value} is no length of this model",
            f"give {facts.shortest_input} to {facts.longest_input} tokens",
        )
