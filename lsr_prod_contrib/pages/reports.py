"""The pages that a job writes at its end, if its deployment has a section ``report``."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lsr_prod.config import Deployment
from lsr_prod.extras import contrib
from lsr_prod.indexing.build import read_builds
from lsr_prod.storage import Store
from lsr_prod.storage.folders import absolute, open_text
from lsr_prod.storage.publications import find_current_publication
from lsr_prod_contrib.pages.encode_run import builds_page, encode_page
from lsr_prod_contrib.pages.evaluation import evaluation_page
from lsr_prod_contrib.pages.index import index_page
from lsr_prod_contrib.pages.runs.encoding import Cluster, describe_builds, describe_encoding
from lsr_prod_contrib.pages.runs.training import describe_training
from lsr_prod_contrib.pages.sections import Page
from lsr_prod_contrib.pages.sweep import sweep_page
from lsr_prod_contrib.pages.training_run import training_page
from lsr_prod_contrib.pages.write import write_page

_Summary = Mapping[str, Any]


def write_report(deployment: Deployment, job: str, summary: _Summary) -> list[str]:
    """Write the pages of a finished job; returns paths or URIs of the HTML files."""
    assert deployment.report is not None
    output, options = deployment.report.output, deployment.storage.options
    return [write_page(output, page, options)[0] for page in _PAGES[job](deployment, summary)]


def report_cluster(deployment: Deployment) -> Cluster | None:
    """Return the cluster that ``report.cluster`` describes."""
    assert deployment.report is not None
    place = deployment.report.cluster
    return None if place is None else contrib("estimates.cluster").load_cluster(Path(place))


def _train(deployment: Deployment, summary: _Summary) -> list[Page]:
    """Return the page of the run that made the model."""
    assert deployment.train is not None
    work = Store(absolute(deployment.train.work), deployment.storage.options)
    return [training_page(describe_training(work, summary["model_digest"]))]


def _encode(deployment: Deployment, summary: _Summary) -> list[Page]:
    """Return the page of the plan that was finished."""
    table = Store(summary["table"], deployment.storage.options)
    return [encode_page(describe_encoding(table, summary["plan"], report_cluster(deployment)))]


def _index(deployment: Deployment, summary: _Summary) -> list[Page]:
    """Return the page of the builds, if one is recorded, and the page of the index, if it is published."""
    assert deployment.index is not None
    assert deployment.report is not None
    index = Store(absolute(deployment.index.output), deployment.storage.options)
    pages = [builds_page(describe_builds(index))] if read_builds(index, last=1) else []
    if summary["publication"] and find_current_publication(index) is not None:
        describe = contrib("diagnostics.index_report").describe_index
        pages.append(index_page(describe(index.uri, deployment.storage.options, sample=deployment.report.sample)))
    return pages


def _evaluate(_deployment: Deployment, summary: _Summary) -> list[Page]:
    return [evaluation_page(summary)]


def _reindex(deployment: Deployment, summary: _Summary) -> list[Page]:
    """Return the pages of the steps that ran; the summary has the figures of a step as ``step.figure``."""
    pages = []
    for step, make in (("encode", _encode), ("index", _index), ("evaluate", _evaluate)):
        figures = {
            name.removeprefix(f"{step}."): value for name, value in summary.items() if name.startswith(f"{step}.")
        }
        if figures:
            pages += make(deployment, figures)
    return pages


def _sweep(deployment: Deployment, summary: _Summary) -> list[Page]:
    with open_text(summary["report"], deployment.storage.options) as file:
        return [sweep_page(json.load(file))]


_PAGES: dict[str, Callable[[Deployment, _Summary], list[Page]]] = {
    "train": _train,
    "encode": _encode,
    "index build": _index,
    "evaluate": _evaluate,
    "reindex": _reindex,
    "sweep": _sweep,
}
