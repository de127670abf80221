"""Write the page of an index: what it consists of, and what its terms say about the model.

    lsr-prod inspect index INDEX [--sample 2000] [--fields title text] [--queries queries.jsonl] [--output DIR]

INDEX is the folder or URI of ``index.output``. The page has bytes by part, shards, the lengths of the postings lists,
the share of blocks that a search skips, dead, expanded and unexplained terms, lineage and publications. Texts of
a sample are read if the index stores them. Blocks are counted for ``--queries`` (JSONL with a field text, at most 200;
needs ONNX Runtime), else for queries made of the heaviest terms of documents. Needs the extra ``pages``.

Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

from collections.abc import Mapping, Sequence

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.page.output import page_parser, save
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, location, store_options
from lsr_prod.operations.pages.index import index_page
from lsr_prod.storage.folders import absolute

_QUERIES = 200


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = page_parser("index", __doc__)
    options.add_argument("index", metavar="INDEX", type=location, help="folder or URI of an index")
    options.add_argument("--sample", type=int, default=2000, metavar="N", help="documents to read (default: 2000)")
    options.add_argument(
        "--fields",
        nargs="+",
        default=[],
        metavar="FIELD",
        help="stored fields with the encoded text; default: index.text_fields",
    )
    options.add_argument("--queries", metavar="FILE", type=location, help="file or URI, JSONL with a field text")
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    return exit_code("inspect index", lambda: _write(argv), output_required=False)


def _write(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    if given.sample < 1:
        raise ConfigError("--sample", f"{given.sample} is no number of documents", "give 1 or more")
    from lsr_prod.operations.index_report import describe_index

    options = store_options(given)
    queries = _read_queries(given.queries, options) if given.queries else []
    found = describe_index(absolute(given.index), options, sample=given.sample, fields=given.fields, queries=queries)
    save(given, index_page(found), {"documents": found["documents"], "publication": found["publication"]})


def _read_queries(place: str, options: Mapping[str, str]) -> list[str]:
    import json
    from itertools import islice

    from lsr_prod.storage.folders import open_text

    with open_text(place, options) as lines:
        try:
            return [str(json.loads(line)["text"]) for line in islice(lines, _QUERIES)]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                "--queries", f"{place} cannot be read ({error})", "give JSONL with a field text"
            ) from error
