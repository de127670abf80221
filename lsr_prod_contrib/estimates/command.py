"""The command ``table estimate``."""

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.errors import ConfigError
from lsr_prod.jobs.terminal.shell import CommandParser, Job, local_path, location
from lsr_prod.jobs.terminal.tables import print_columns, print_table
from lsr_prod_contrib.estimates.cluster import load_cluster
from lsr_prod_contrib.estimates.estimate import Corpus
from lsr_prod_contrib.estimates.estimate import estimate as estimate_encode
from lsr_prod_contrib.estimates.measured import read_runs
from lsr_prod_contrib.estimates.sample import SampledTokens, sample_tokens

_SAMPLE_DOCUMENTS = 2000


def _count(value: str) -> int:
    """Return a positive whole number, also written as 1e9."""
    try:
        number = float(value.replace("_", ""))
        if number >= 1 and number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"{value!r} is not possible; give a whole number, for example 1000000 or 1e6")


def _add_options(parser: CommandParser) -> None:
    parser.add_argument("--documents", type=_count, metavar="N", help="documents of the corpus, for example 1e9")
    parser.add_argument("--bytes", type=_count, metavar="B", help="bytes of its files")
    parser.add_argument(
        "--run",
        action="append",
        default=[],
        metavar="FILE",
        help="output of a measured encode, index or reindex job; - is the standard input; may be repeated",
    )
    parser.add_argument("--cluster", type=local_path, metavar="FILE", help="YAML file of the cluster and its prices")
    parser.add_argument(
        "--sample", type=location, metavar="PATH", help="documents of the corpus, to count their tokens"
    )
    parser.add_argument(
        "--sample-documents",
        type=_count,
        default=_SAMPLE_DOCUMENTS,
        metavar="N",
        help=f"documents of the sample that are read; default: {_SAMPLE_DOCUMENTS}",
    )


def _print(summary: Mapping[str, Any]) -> None:
    rows = [
        [name.replace("_", " "), summary[name], origin, summary["notes"][name]]
        for name, origin in summary["origins"].items()
    ]
    print_columns("estimate", ("figure", "value", "origin", "from"), rows)
    for number, warning in enumerate(summary["warnings"], start=1):
        print_table("uncertain", {str(number): warning})


def _sample(deployment: Deployment, given: argparse.Namespace) -> SampledTokens:
    if deployment.source is None or deployment.encode is None:
        raise ConfigError(
            "--sample", "it needs the sections source and encode", "add --config with the deployment's file"
        )
    source = deployment.source.model_copy(update={"paths": [given.sample]})
    return sample_tokens(source, deployment.encode, deployment.storage.options, documents=given.sample_documents)


@partial(Job, "table estimate", needs=(), optional=("source", "encode"), add_options=_add_options, show=_print)
def estimate(deployment: Deployment, given: argparse.Namespace) -> Mapping[str, Any]:
    """Estimate hours, storage, requests and cost of encoding a corpus, from measured runs.

        lsr-prod encode --config small.yaml | tee small.txt
        lsr-prod table estimate --documents 1e9 --bytes 1e12 --run small.txt --cluster cluster.yaml
        lsr-prod table estimate --documents 1e9 --bytes 1e12 --run small.txt --sample part.jsonl --config deployment.yaml

    A measured run is the output of ``lsr-prod encode``, ``index`` or ``reindex``, with its line ``RESULT {json}``. Two
    encode runs of different sizes separate the time of the start from the time per token better than one. The cluster file
    has nodes, actors per node, speed and prices; without it the estimate is for the machine of the run, without cost.
    With ``--sample``, tokens per document are counted in documents of PATH, by the sections ``source`` and ``encode``.
    Nothing is written.

    Prints a table that says of each figure whether it was measured, given or computed, and one line ``RESULT {json}``.
    Exit codes: 0 done, 1 failed, 2 bad configuration.
    """
    for option, value in (("--documents", given.documents), ("--bytes", given.bytes), ("--run", given.run)):
        if not value:
            raise ConfigError(option, "it is required, but was not given", "see lsr-prod table estimate --help")
    if given.run.count("-") > 1:
        raise ConfigError("--run", "the standard input is named twice", "give - once")
    runs = read_runs(given.run)
    cluster = None if given.cluster is None else load_cluster(Path(given.cluster))
    sample = None if given.sample is None else _sample(deployment, given)
    return estimate_encode(Corpus(given.documents, given.bytes, sample), runs, cluster).result()
