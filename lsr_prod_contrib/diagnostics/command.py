"""The command ``inspect terms``.

torch and transformers take seconds to load: they are imported after the arguments are checked.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lsr_prod.errors import ConfigError
from lsr_prod.extras import contrib
from lsr_prod.jobs.terminal.output import print_result
from lsr_prod.jobs.terminal.shell import (
    Command,
    CommandParser,
    add_fields_option,
    add_store_option,
    location,
    store_options,
)
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod.storage.folders import absolute, store_file

_SHOWN = 15  # terms of a list in a table


def _add_terms_options(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", type=location, help="folder or URI of a model directory")
    parser.add_argument("--index", metavar="INDEX", type=location, help="folder or URI of an index, instead of MODEL")
    parser.add_argument("--texts", metavar="FILE", type=location, help="file or URI, JSONL with a field text")
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="texts to read at most (default: 1000)")
    parser.add_argument("--sample", type=int, default=2000, metavar="N", help="documents of the index (default: 2000)")
    add_fields_option(parser)
    parser.add_argument("--output", metavar="FILE", type=location, help="file or URI for the figures as JSON")
    add_store_option(parser)


@partial(Command, "inspect terms", add_options=_add_terms_options)
def terms(given: argparse.Namespace) -> None:
    """Diagnose a model on texts, or a published index: head, logits, activated, dead, expanded and unexplained terms.

        lsr-prod inspect terms MODEL --texts documents.jsonl [--count 1000] [--output diagnosis.json]
        lsr-prod inspect terms --index INDEX [--sample 2000] [--fields title text] [--output diagnosis.json]

    MODEL is the folder or URI of a model directory, INDEX that of ``index.output``. Of a model it prints norms and
    anisotropy of the head, statistics of the logits, terms per text, the casing of output terms by that of input tokens,
    and from the texts the terms that are dead, those that are most often activated by texts that do not contain them, and
    those of them that the texts do not explain. Of an index, it reads the postings, and vectors and stored texts of
    a sample; no model is needed. docs/pages.md defines the figures.

    Prints tables and one line ``RESULT {json}``; ``--output`` writes all lists as JSON.
    Exit codes: 0 done, 1 failed, 2 bad usage.
    """
    if (given.model is None) == (given.index is None):
        raise ConfigError("command line", "give either MODEL or --index", "see lsr-prod inspect terms --help")
    if given.model is not None and given.texts is None:
        raise ConfigError("--texts", "a model is diagnosed on texts", "give JSONL with a field text")
    for name in ("count", "sample"):
        if getattr(given, name) < 1:
            raise ConfigError(f"--{name}", f"{getattr(given, name)} is no number of documents", "give 1 or more")
    options = store_options(given)
    found = _of_model(given, options) if given.index is None else _of_index(given, options)
    _print_terms(found)
    if given.output is not None:
        store_file(absolute(given.output), f"{json.dumps(found, indent=1)}\n".encode(), options)
    print_result(_flat(found))


def _of_model(given: Any, options: dict[str, str]) -> dict[str, Any]:
    from lsr_prod.corpus.source_rows import is_visible
    from lsr_prod.model import SparseEncoder
    from lsr_prod.storage.folders import open_source
    from lsr_prod_contrib.diagnostics.model_report import diagnose_model

    texts = contrib("vocabularies.figures").read_texts(given.texts, given.count, options)
    texts = list(filter(is_visible, texts))
    return {"model": given.model, **diagnose_model(SparseEncoder.load(open_source(given.model, options)), texts)}


def _of_index(given: Any, options: dict[str, str]) -> dict[str, Any]:
    from lsr_prod.search import Searcher
    from lsr_prod_contrib.diagnostics.index_report import diagnose_index

    with Searcher.open(given.index, storage_options=options) as searcher:
        return {
            "index": given.index,
            **diagnose_index(searcher.snapshot, sample=given.sample, fields=given.fields),
        }


def _print_terms(found: Mapping[str, Any]) -> None:
    """Print the result of ``diagnose_model`` or ``diagnose_index``."""
    for name in ("head", "logits"):
        if found.get(name) is not None:
            print_table(name, _flat(found[name]))
    if found.get("casing") is not None:
        outputs = list(next(iter(found["casing"].values())))
        rows = [[source, *counts.values()] for source, counts in found["casing"].items()]
        print_columns("activated (token, term) pairs by casing", ("input token", *outputs), rows)
    print_table("activated terms per document", found["activated"])
    print_table("postings lists", {name: value for name, value in found["postings"].items() if name != "curve"})
    dead = found["dead"]
    facts = {"dead terms": dead["terms"], "share of all terms": dead["share"], "of these special": dead["special"]}
    print_table("dead terms", {**facts, **(dead.get("rows") or {}), "first": _names(dead["list"])})
    if found["expansion"] is not None:
        facts = {name: found["expansion"][name] for name in ("terms", "term_share", "weight_share")}
        print_table("expansion", facts)
        _print_list("most expanded terms", found["expansion"]["most"])
    if found["unexplained"] is not None:
        print_table("unexplained terms", {k: v for k, v in _flat(found["unexplained"]).items() if k != "most"})
        _print_list("terms with most unexplained expansions", found["unexplained"]["most"])
    if found["missing"]:
        print_columns("not available", ("figure", "reason"), list(found["missing"].items()))


def _print_list(title: str, terms: Sequence[Mapping[str, Any]]) -> None:
    if terms:
        headings = [name.replace("_", " ") for name in terms[0]]
        rows = [list(row.values()) for row in terms[:_SHOWN]]
        print_columns(title, headings, rows)


def _names(terms: Sequence[str]) -> str:
    return " ".join(terms[:_SHOWN]) + (" ..." if len(terms) > _SHOWN else "")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the numbers and texts of nested mappings by dotted name, without lists."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            flat[f"{prefix}{name}"] = value
    return flat
