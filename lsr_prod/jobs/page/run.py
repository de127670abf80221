"""Write the page of a run of train, encode or index, from the records in the store of its artifact.

    lsr-prod inspect run WORK [--model DIGEST] [--output DIR]
    lsr-prod inspect run TABLE [--plan DIGEST] [--cluster cluster.yaml] [--output DIR]
    lsr-prod inspect run INDEX [--output DIR]

WORK is the folder or URI of ``train.work``, TABLE that of ``encode.table``, INDEX that of ``index.output``. The page
may be written while the job runs. Training: loss, active terms, validation and throughput of every stage that led to
the model that was finished last (or to ``--model``), and of an unfinished stage that reported later. Encode: waves,
rates, idle share of the encoders, quarantined rows by reason and cost of the newest plan. Index: shards, bytes, seconds
and gates of the last build, and the builds before. Only records are read. Needs the extra ``pages``.

Prints the place of the page, and a line ``RESULT {json}``. Exit codes: 0 done, 1 failed, 2 bad usage.
"""

import argparse
from collections.abc import Sequence

from lsr_prod.errors import ConfigError
from lsr_prod.jobs.page.output import page_parser, save
from lsr_prod.jobs.terminal.shell import CommandParser, exit_code, local_path, location, store_options
from lsr_prod.operations.pages import Page
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute

_OPTIONS = {"model": "training", "plan": "encode", "cluster": "encode"}


def parser() -> CommandParser:
    """Return the parser of the command line."""
    options = page_parser("run", __doc__)
    options.add_argument(
        "place", metavar="PLACE", type=location, help="folder or URI: train.work, a table, or an index"
    )
    options.add_argument("--model", metavar="DIGEST", help="training: 8 or more digits of the digest of a model")
    options.add_argument("--plan", metavar="DIGEST", help="encode: 8 or more digits of the digest of a plan")
    options.add_argument(
        "--cluster",
        metavar="FILE",
        type=local_path,
        help="encode: YAML file with prices, as for lsr-prod table estimate",
    )
    return options


def main(argv: Sequence[str]) -> int:
    """Write the page; returns the exit code."""
    return exit_code("inspect run", lambda: _write(argv), output_required=False)


def _write(argv: Sequence[str]) -> None:
    given = parser().parse_args(argv)
    store = Store(absolute(given.place), store_options(given))
    kind = _kind(store)
    for name, wanted in _OPTIONS.items():
        if getattr(given, name) is not None and kind != wanted:
            raise ConfigError(f"--{name}", f"{store.uri} holds records of {kind}, not of {wanted}", "leave it out")
    save(given, _page(kind, store, given), {"kind": kind})


def _kind(store: Store) -> str:
    """Return what a folder holds records of; each kind of artifact has a folder that no other one has."""
    for folder, kind in (
        ("_lsr_prod", "encode"),
        ("publications", "index"),
        ("builds", "index"),
        ("stages", "training"),
    ):
        if store.names(folder):
            return kind
    if store.names("runs"):  # of a chain that has not finished a stage
        return "training"
    raise ConfigError(
        "PLACE", f"{store.uri} holds no records of a run", "give train.work, encode.table or index.output"
    )


def _page(kind: str, store: Store, given: argparse.Namespace) -> Page:
    if kind == "training":
        from lsr_prod.operations.pages.training_run import training_page
        from lsr_prod.operations.runs.training import describe_training

        return training_page(describe_training(store, given.model))
    if kind == "encode":
        from lsr_prod.operations.dry_run import load_cluster
        from lsr_prod.operations.pages.encode_run import encode_page
        from lsr_prod.operations.runs.encoding import describe_encoding

        cluster = None if given.cluster is None else load_cluster(given.cluster)
        return encode_page(describe_encoding(store, given.plan, cluster))
    from lsr_prod.operations.pages.encode_run import builds_page
    from lsr_prod.operations.runs.encoding import describe_builds

    return builds_page(describe_builds(store))
