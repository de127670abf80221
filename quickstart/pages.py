"""Pages of a finished run: one query, the evaluation, and the training."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lsr_prod import Searcher
from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.tables import print_table
from lsr_prod.search import Hybrid
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute
from lsr_prod_contrib.pages import Page, write_page
from lsr_prod_contrib.pages.evaluation import evaluation_page
from lsr_prod_contrib.pages.query import query_data, query_page
from lsr_prod_contrib.pages.runs.training import describe_training
from lsr_prod_contrib.pages.training_run import training_page
from quickstart.stages import FOLDER, Stage

__all__ = ["EXAMPLE", "print_pages", "write_pages"]

EXAMPLE = "parse a date string"


def write_pages(deployment: Deployment, stages: Sequence[Stage]) -> Mapping[str, Any]:
    """Write the pages of the default deployment into ``.quickstart/pages``.

    Returns:
        Name of each page -> absolute path of its HTML file.
    """
    return {page.name: write_page(FOLDER / "pages", page)[0] for page in _pages(deployment, stages)}


def print_pages(stages: Sequence[Stage]) -> None:
    """Print where the pages are."""
    for stage in stages:
        if stage.kind == "pages":
            print_table("pages", stage.summary)


def _pages(deployment: Deployment, stages: Sequence[Stage]) -> Iterator[Page]:
    summaries = {stage.kind: stage.summary for stage in stages if not stage.prefix}
    assert deployment.index is not None
    assert deployment.evaluate is not None
    assert deployment.train is not None
    hybrid = Hybrid(words=next(one.words for one in deployment.evaluate.systems or [] if one.kind == "hybrid"))
    with Searcher.open(deployment.index.output) as searcher:
        searcher.search(EXAMPLE, hybrid=hybrid)  # the first query of a process reads its files, and is slow
        yield query_page(query_data(searcher, EXAMPLE, hybrid=hybrid))
    yield evaluation_page(summaries["evaluate"])
    work = Store(absolute(deployment.train.work))
    yield training_page(describe_training(work, summaries["train"]["model_digest"]))
