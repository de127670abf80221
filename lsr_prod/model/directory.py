"""The model directory: weights, tokenizer and encoder card in the layout of sentence-transformers' SparseEncoder.

::

    <model>/
      encoder_card.json                       the card: all that lsr_prod needs in addition to weights and tokenizer
      config.json  model.safetensors          as transformers writes them
      tokenizer.json  tokenizer_config.json
      modules.json  sentence_bert_config.json config_sentence_transformers.json  1_SpladePooling/config.json
      output_layer.safetensors  output_vocabulary.json   of a separate output layer, see ``output_layer``
      query/                                  a separate query encoder: the same files again
      sparse_linear.safetensors               of a head of token weights, see ``token_weights``
      appended_heads.safetensors              heads of appended tokens, see ``appended_heads``
      README.md                               the model card of Hugging Face, see ``model_card``
      query_weights.npy                       weights of query terms, see ``formats.term_weights``

With a separate query encoder or inference-free queries, the files of the middle are in other folders, see
``layout_writer``. The files of sentence-transformers are left out if it cannot express the settings of the card.
The directory is written as a draft in the same parent folder and renamed, so it is either complete or absent.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from lsr_prod import errors, logs
from lsr_prod.model import (
    appended_heads,
    autoencoder,
    backbone,
    layout_reader,
    layout_writer,
    model_card,
    output_layer,
    token_weights,
    tokenizer_files,
)
from lsr_prod.storage import disk, drafts, folders, is_remote
from lsr_prod.storage.formats import bundle_format, digests, term_weights

log = logs.get_log(__name__)
# Fields of the card that sentence-transformers has too, or that change no vector.
_EXPRESSIBLE = {
    "activation", "casing", "document_max_length", "document_prompt", "max_terms", "parents", "query_encoder",
    "query_max_length", "query_prompt", "query_special_tokens",
}  # fmt: skip
_OF_AUTOENCODER = {"head", "output_vocabulary", "pooled_states", "state_scaling"}


class ModelParts(NamedTuple):
    """Parts of an encoder that a model directory stores."""

    model: PreTrainedModel  # a language model
    tokenizer: PreTrainedTokenizerFast  # its tokenizer
    card: bundle_format.EncoderCard  # the encoder card
    words: list[str] | None = None  # the output terms if they are not the tokenizer's tokens
    # float32 [V], learned weights of query terms, or the IDF of the training documents; None: there are none
    query_weights: Tensor | None = None
    heads: appended_heads.AppendedHeads | None = None  # heads of appended tokens


def write_model_directory(folder: Path, parts: ModelParts, queries: ModelParts | None = None) -> str:
    """Write a model directory atomically.

    Returns:
        Its digest (hex).
    """
    with drafts.Draft(folder) as draft:
        _write_parts(draft.folder, parts, queries)
        if queries is not None:
            _write_parts(draft.folder / bundle_format.QUERY_FOLDER, queries)
        model_card.write_model_card(draft.folder)
        digest = model_digest(draft.folder)
        seal_directory(draft, field="output")
    return digest


def _write_parts(made: Path, parts: ModelParts, queries: ModelParts | None = None) -> None:
    model, tokenizer, card, words, query_weights, heads = parts
    own = _has_own_output_layer(parts)
    inexpressible = _inexpressible(parts) | (_inexpressible(queries) if queries else {})
    if queries is not None and queries.card.max_terms != card.max_terms:
        inexpressible["max_terms"] = f"{card.max_terms} and {queries.card.max_terms}"
    if inexpressible:
        log.warning("sentence-transformers cannot open this model", extra={"fields": inexpressible})
    folder = made if card.query_encoder == "model" or inexpressible else made / layout_reader.DOCUMENT_FOLDER
    saved = output_layer.weights_without_output_layer(model) if own else None
    if card.head != "vocabulary":
        saved = token_weights.weights_of_backbone(model)
    model.save_pretrained(folder, state_dict=saved)
    # safetensors creates its file readable by the owner only; the other files follow the umask.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode)
    tokenizer_files.write_tokenizer(folder, tokenizer, card.document_max_length)
    if own:
        output_layer.save_output_layer(made, model)
    if card.head == "token_weights":
        token_weights.save_sparse_linear(made, model)
    if heads is not None:
        appended_heads.save_appended_heads(made, heads)
    if words is not None:
        output_layer.write_output_vocabulary(made, words)
    if query_weights is not None:
        drafts.write_file(made / term_weights.QUERY_WEIGHTS_FILE, term_weights.weights_to_bytes(query_weights.numpy()))
    if not inexpressible:
        layout_writer.write_layout(made, card, model, tokenizer, query_weights, queries and queries.card)
    drafts.write_file(made / bundle_format.CARD_FILE, card.to_bytes())


def model_digest(folder: Path) -> str:
    """Return the sha256 (hex) that names a model directory: it covers path and bytes of every file."""
    return digests.digest_json([file.to_json() for file in digests.digest_folder(folder)])


@contextmanager
def folder_to_save(place: str, options: Mapping[str, str] | None = None, *, field: str) -> Iterator[Path]:
    """Yield an empty folder that is stored at a path or URI when the block ends without an error."""
    if not is_remote(place):
        with drafts.Draft(Path(place)) as draft:
            yield draft.folder
            seal_directory(draft, field=field)
        return
    with disk.scratch_folder() as scratch:
        yield scratch
        try:
            folders.save_folder(scratch, place, options)
        except errors.ArtifactError as error:
            raise errors.ConfigError(field, str(error), "name a folder that does not exist") from error


def seal_directory(draft: drafts.Draft, *, field: str) -> None:
    """Seal the draft of a folder; a folder that already has the same content is kept."""
    if not draft.seal() and model_digest(draft.target) != model_digest(draft.folder):
        raise errors.ConfigError(field, f"{draft.target} has other content", "name a folder that does not exist")


def _has_own_output_layer(parts: ModelParts) -> bool:
    return parts.card.head == "vocabulary" and output_layer.has_own_output_layer(parts.model)


def _inexpressible(parts: ModelParts) -> dict[str, str]:
    """Return the fields that sentence-transformers cannot express: with them it would compute other vectors."""
    card = parts.card
    expressible = _EXPRESSIBLE | (_OF_AUTOENCODER if card.head == autoencoder.AUTOENCODER else set())
    standard = {one.name: one.default for one in fields(card) if one.default is not MISSING}
    found = {
        name: str(getattr(card, name))
        for name, usual in standard.items()
        if name not in expressible and getattr(card, name) != usual
    }
    if backbone.is_causal(card.architecture):
        found["architecture"] = card.architecture
    if card.inference_free and card.max_terms is not None:
        found["max_terms"] = str(card.max_terms)  # it would apply to queries, too
    if _has_own_output_layer(parts):
        found["output_layer"] = "its own"
    if card.inference_free and card.vocabulary_size != (tokens := len(parts.tokenizer.get_vocab())):
        found["vocabulary_size"] = f"{card.vocabulary_size} for {tokens} tokens"
    return found
