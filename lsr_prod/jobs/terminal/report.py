"""Report pages that jobs write at their end when ``report`` is set: a page of the run, and of what it made."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsr_prod.config import Deployment
from lsr_prod.extras import missing_extra
from lsr_prod.jobs.terminal.output import say
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute
from lsr_prod.storage.publications import find_current_publication

if TYPE_CHECKING:
    from lsr_prod.operations.dry_run import ClusterDescription
    from lsr_prod.operations.pages import Page

MakePages = Callable[[Deployment, Mapping[str, Any]], Sequence["Page"]]
"""Returns the pages of a finished job, given its settings and its summary."""


def check_report(deployment: Deployment) -> None:
    """Check everything that the pages need, before the job does its work; nothing is checked without ``report``."""
    if deployment.report is None:
        return
    try:
        import lsr_prod.operations.pages  # noqa: F401 - imports jinja2 and vl_convert
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    _cluster(deployment)


def write_report(deployment: Deployment, make: MakePages, summary: Mapping[str, Any]) -> list[str]:
    """Write the pages of a finished job, and print where they are.

    Returns:
        Paths or URIs of the HTML files.
    """
    from lsr_prod.operations.pages import write_page

    assert deployment.report is not None
    output, options = deployment.report.output, deployment.storage.options
    places = [write_page(output, page, options)[0] for page in make(deployment, summary)]
    for place in places:
        say(f"page  {place}")
    return places


def train_pages(deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    """Return the page of the run that made the model."""
    from lsr_prod.operations.pages.training_run import training_page
    from lsr_prod.operations.runs.training import describe_training

    assert deployment.train is not None
    work = Store(absolute(deployment.train.work), deployment.storage.options)
    return [training_page(describe_training(work, summary["model_digest"]))]


def encode_pages(deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    """Return the page of the plan that was finished."""
    from lsr_prod.operations.pages.encode_run import encode_page
    from lsr_prod.operations.runs.encoding import describe_encoding

    table = Store(summary["table"], deployment.storage.options)
    return [encode_page(describe_encoding(table, summary["plan"], _cluster(deployment)))]


def index_pages(deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    """Return the page of the builds, if one is recorded, and the page of the index, if it is published."""
    from lsr_prod.indexing.build import read_builds
    from lsr_prod.operations.index_report import describe_index
    from lsr_prod.operations.pages.encode_run import builds_page
    from lsr_prod.operations.pages.index import index_page
    from lsr_prod.operations.runs.encoding import describe_builds

    assert deployment.index is not None
    assert deployment.report is not None
    index = Store(absolute(deployment.index.output), deployment.storage.options)
    pages = [builds_page(describe_builds(index))] if read_builds(index, last=1) else []
    if summary["publication"] and find_current_publication(index) is not None:
        found = describe_index(index.uri, deployment.storage.options, sample=deployment.report.sample)
        pages.append(index_page(found))
    return pages


def evaluate_pages(_deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    """Return the evaluation report; the summary has the values per query."""
    from lsr_prod.operations.pages.evaluation import evaluation_page

    return [evaluation_page(summary)]


def reindex_pages(deployment: Deployment, summary: Mapping[str, Any]) -> list["Page"]:
    """Return the pages of the steps that ran."""
    steps: dict[str, MakePages] = {"encode": encode_pages, "index": index_pages, "evaluate": evaluate_pages}
    pages: list[Page] = []
    for step, make in steps.items():
        prefix = f"{step}."
        figures = {name.removeprefix(prefix): value for name, value in summary.items() if name.startswith(prefix)}
        if figures:
            pages += make(deployment, figures)
    return pages


def _cluster(deployment: Deployment) -> "ClusterDescription | None":
    from lsr_prod.operations.dry_run import load_cluster

    assert deployment.report is not None
    return None if deployment.report.cluster is None else load_cluster(Path(deployment.report.cluster))
