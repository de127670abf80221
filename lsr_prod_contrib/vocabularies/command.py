"""The command ``inspect vocabulary``.

torch and transformers take seconds to load: they are imported after the arguments are checked.
"""

import argparse
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.shell import (
    Command,
    CommandParser,
    add_store_option,
    local_path,
    location,
    store_options,
)
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.storage.folders import open_source

if TYPE_CHECKING:
    from lsr_prod_contrib.vocabularies.figures import Inspection


def _add_vocabulary_options(parser: CommandParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=location,
        help="folder or URI of a language model, or a Hugging Face id",
    )
    parser.add_argument(
        "--target",
        metavar="PATH",
        type=location,
        help="another vocabulary: folder, URI or file of a tokenizer, or a model directory",
    )
    parser.add_argument(
        "--target-embeddings",
        metavar="FOLDER",
        type=location,
        help="folder or URI of a model with the tokens of the target; default: target",
    )
    parser.add_argument(
        "--words", nargs="+", default=[], metavar="WORD", help="words of the target to print the nearest rows of"
    )
    parser.add_argument("--texts", type=location, metavar="FILE", help="file or URI, JSONL with a field text")
    add_store_option(parser)
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="texts to read at most (default: 1000)")
    parser.add_argument(
        "--casing", type=local_path, metavar="FILE", help="JSON file for the confusion matrix of casing"
    )
    parser.add_argument("--picture", type=local_path, metavar="FILE", help="PNG file for a picture of that matrix")


@partial(Command, "inspect vocabulary", add_options=_add_vocabulary_options)
def vocabulary(given: argparse.Namespace) -> None:
    """Print facts about the output vocabulary of a model.

        lsr-prod inspect vocabulary MODEL [--target OTHER --words lock mutex] [--texts texts.jsonl --casing casing.json]

    Prints norms of the vocabulary head, its overlap with another vocabulary (``--target``), sub-tokens per word of
    ``--texts``, the nearest rows of ``--words`` of the target, and writes the confusion matrix of casing between input and
    output as JSON (``--casing``) and as a picture (``--picture``).
    Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    if (given.casing or given.picture) and not given.texts:
        raise ConfigError("--casing", "the matrix is measured on texts", "give --texts too")
    if given.picture and find_spec("matplotlib") is None:
        raise ConfigError("--picture", "matplotlib is not installed", "install it with: pip install matplotlib")
    from lsr_prod.model import SparseEncoder
    from lsr_prod_contrib.vocabularies.casing_matrix import casing_matrix
    from lsr_prod_contrib.vocabularies.figures import inspect_vocabulary, read_texts

    options = store_options(given)
    model = open_source(given.model, options)
    target, embeddings = (
        None if place is None else open_source(place, options) for place in (given.target, given.target_embeddings)
    )
    texts = read_texts(given.texts, given.count, options) if given.texts else []
    found = inspect_vocabulary(model, target=target, target_embeddings=embeddings, words=given.words, texts=texts)
    _print_vocabulary(found, given.model)
    if given.casing or given.picture:
        matrix = casing_matrix(SparseEncoder.load(model), texts)
        if given.casing:
            matrix.save(given.casing)
        if given.picture:
            matrix.draw(given.picture, given.model)


def _print_vocabulary(found: "Inspection", title: str) -> None:
    """Print the result of ``inspect_vocabulary``."""
    norms = found.norms
    print_columns(
        title,
        ("rows", "mean norm", "max norm", "anisotropy", "tied", "bias"),
        [[norms.rows, norms.mean_norm, norms.max_norm, norms.anisotropy, norms.tied, norms.has_bias]],
    )
    facts: dict[str, Any] = {"terms": found.terms, "cased terms": found.cased}
    if found.target_terms is not None:
        facts["terms of the target"] = found.target_terms
    if found.overlap is not None:
        facts["share of the target's terms that the model has"] = f"{found.overlap:.1%}"
    if found.fragmentation is not None:
        own, other = found.fragmentation
        facts["tokens per word"] = own
        if other is not None:
            facts["tokens per word, target"] = other
    print_table("vocabulary", facts)
    if found.neighbors:
        rows = []
        for entry in found.neighbors:
            nearest = ", ".join(f"{term} {weight:.3f}" for term, weight in entry.nearest)
            rows.append([entry.term, " ".join(entry.pieces), "copied" if entry.shared else nearest, entry.support])
        print_columns("sources of new rows", ("term", "sub-tokens", "nearest", "of"), rows)
