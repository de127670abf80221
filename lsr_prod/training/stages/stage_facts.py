"""Facts of the model of a chain that are known before anything runs.

They are read from the start model, and the check of each stage returns the facts after that stage. So the settings of a
later stage are checked against a model that does not exist yet.

A separate query encoder of a fine-tuning is in a folder of the model directory, so checkpoints, export and lineage
treat both encoders as one model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from torch import nn

from lsr_prod.config.training import FinetuneSettings
from lsr_prod.errors import ArtifactError, ConfigError
from lsr_prod.inference.terms.surfaces import notation_of
from lsr_prod.model import SparseEncoder, backbone, card_update, model_digest
from lsr_prod.storage import Store, artifacts, disk
from lsr_prod.storage.formats.bundle_format import Attention, EncoderCard, longest_input

TRANSFER_FILE = "vocabulary_transfer.json"
"""File of a model directory with the tokens that a vocabulary transfer added, ``{"new": [token ids]}``."""
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Properties of a model other than its weights."""

    architecture: str  # class name, for example ``BertForMaskedLM``
    kind: Literal["masked", "causal"]  # masked or causal language model
    vocabulary_size: int  # V, the number of output terms; an upper bound if a stage counts them only when it runs
    # of the output terms, as in the card; None: only known after the stage that creates them
    vocabulary_sha256: str | None
    hidden_size: int  # d, the width of the output matrix [V, d]
    has_bias: bool  # the output matrix has a bias
    tied: bool  # the output matrix is tied to the token embeddings
    output_vocabulary: Literal["tokenizer", "words"]  # tokens of the tokenizer, or words
    casing: Literal["none", "lowercase"]  # as in the card
    attention: Attention  # as in the card
    pooled_states: Literal["tokens", "mean", "first"]  # as in the card
    appended_tokens: int  # as in the card
    query_max_length: int  # tokens of a query, including special tokens
    document_max_length: int  # tokens of a document
    longest_input: int  # maximum number of tokens of an input
    shortest_input: int  # minimum number of tokens of an input: the special tokens and one more
    roles: frozenset[str]  # special tokens that the tokenizer has: of bos, eos, unk, sep, pad, cls, mask
    linear_modules: frozenset[str]  # names of the backbone's linear modules, without their parents
    transferred: bool  # the model directory has a record of the tokens that a vocabulary transfer added
    token_head: bool = False  # the output words are tokens of another tokenizer, so they cannot be found in a text
    query_encoder: Literal["model", "idf", "learned", "separate"] = "model"  # as in the card
    query_prompt: str = ""  # as in the card
    head: Literal["vocabulary", "token_weights", "autoencoder"] = "vocabulary"  # as in the card
    # a ``vocabulary_sha256`` and the letters of its terms, see ``letters_of``
    letters: tuple[str, frozenset[str]] | None = None

    @classmethod
    def of(cls, encoder: SparseEncoder, folder: Path | None = None) -> "ModelFacts":
        """Return the facts of a loaded model."""
        card, tokenizer = encoder.card, encoder.tokenizer
        weight, bias = encoder.head_layer()
        modules = encoder.model.base_model.named_modules()
        return cls(
            architecture=card.architecture,
            kind="causal" if backbone.is_causal(card.architecture) else "masked",
            vocabulary_size=card.vocabulary_size,
            vocabulary_sha256=card.vocabulary_sha256,
            hidden_size=weight.shape[1],
            has_bias=bias is not None,
            tied=weight is encoder.model.get_input_embeddings().weight,
            output_vocabulary=card.output_vocabulary,
            casing=card.casing,
            attention=card.attention,
            pooled_states=card.pooled_states,
            appended_tokens=card.appended_tokens,
            query_max_length=(encoder.queries or encoder).card.query_max_length,
            document_max_length=card.document_max_length,
            longest_input=longest_input(encoder.model.config.to_dict(), card.attention),
            shortest_input=tokenizer.num_special_tokens_to_add() + 1,
            roles=frozenset(role for role in _ROLES if getattr(tokenizer, f"{role}_token", None) is not None),
            linear_modules=frozenset(name.rpartition(".")[2] for name, one in modules if isinstance(one, nn.Linear)),
            transferred=folder is not None and (folder / TRANSFER_FILE).is_file(),
            token_head=card.output_vocabulary == "words" and notation_of(encoder.vocabulary) != "words",
            query_encoder=card.query_encoder,
            query_prompt=card.query_prompt,
            head=card.head,
            letters=(card.vocabulary_sha256, card_update.letters_of(encoder.vocabulary)),
        )


def check_length(name: str, value: int | None, facts: ModelFacts) -> None:
    """Refuse a number of tokens that the model does not support; None, the length of the card, always fits."""
    if value is not None and not facts.shortest_input <= value <= facts.longest_input:
        problem = f"{value} is outside the lengths of this model"
        raise ConfigError(name, problem, f"give {facts.shortest_input} to {facts.longest_input} tokens")


def check_query_model(
    stage: FinetuneSettings, facts: ModelFacts, *, pins: Mapping[str, str]
) -> tuple[dict[str, str], ModelFacts]:
    """Check the query encoder; return the digests with its digest, and the facts of the model that encodes queries."""
    if stage.query_model is None:
        if facts.query_encoder != "separate" and stage.trained != "both":
            problem = f"{stage.trained} trains one of two encoders, but one model encodes queries and documents"
            raise ConfigError("trained", problem, "set query_model, or leave trained out")
        if facts.query_encoder == "separate" and (stage.scale.lora is not None or stage.scale.strategy == "fsdp"):
            problem = "a model with a separate query encoder is trained with strategy ddp and without lora"
            raise ConfigError("scale", problem, "leave lora out and set strategy to ddp")
        return dict(pins), facts
    folder = Path(stage.query_model)
    try:
        card, digest = EncoderCard.load(folder), model_digest(folder)
    except ArtifactError as error:
        raise ConfigError("query_model", str(error), "name a model directory of lsr_prod") from error
    if facts.query_encoder != "model" or card.query_encoder != "model":
        found = facts.query_encoder if facts.query_encoder != "model" else card.query_encoder
        problem = f"a card says query_encoder {found}: another encoder reads queries already"
        remedy = "leave query_model out, or use two models that encode queries themselves"
        raise ConfigError("query_model", problem, remedy)
    if facts.vocabulary_sha256 not in (None, card.vocabulary_sha256):
        problem = f"its {card.vocabulary_size} output terms differ from the model's {facts.vocabulary_size}"
        remedy = "give a model with the same output vocabulary, or transfer it to that vocabulary first"
        raise ConfigError("query_model", problem, remedy)
    return {**pins, "query_model": digest}, ModelFacts.of(SparseEncoder.load(folder), folder)


def with_query_model(stage: FinetuneSettings, work: Store, start: str) -> str:
    """Return the digest of the model directory to start from, with the query encoder in it, in the work store."""
    if stage.query_model is None:
        return start
    folder = Path(stage.query_model)
    queries = SparseEncoder.load(folder)
    queries.card = replace(queries.card, parents=(model_digest(folder), *queries.card.parents))
    documents = SparseEncoder.load(artifacts.fetch_artifact(work, f"models/{start}"))
    if (documents.model.config.pad_token_id or 0) != (queries.model.config.pad_token_id or 0):
        raise ConfigError("query_model", "its padding token is another one", "give a model with the same padding token")
    with disk.scratch_folder() as scratch:
        pair = scratch / "model"
        digest = documents.with_queries(queries).save(pair)
        artifacts.put_artifact(work, f"models/{digest}", pair)
    return digest
