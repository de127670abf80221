"""Config patches: YAML files with the fields of a deployment that a sweep or a tuner has chosen."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from lsr_prod.config import Deployment
from lsr_prod.storage.folders import store_file

Patch = Mapping[str, Mapping[str, Any]]
"""Section -> field -> value."""


def limit_patch(patch: Patch, deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Return the part of a patch whose sections a deployment has; all of it if the deployment has none of them.

    A section with some of its fields is valid only on top of a whole one.
    """
    given = [section for section in patch if getattr(deployment, section) is not None]
    return {section: dict(fields) for section, fields in patch.items() if section in given or not given}


def search_options(
    *, qk: int | None, threshold: float, hybrid_weight: float | None, depth: int | None = None
) -> dict[str, Any]:
    """Return keyword arguments of ``Searcher.search``; ``hybrid`` holds those of ``Hybrid``.

    Args:
        qk: maximum terms of a query; None: all.
        threshold: overlap threshold.
        hybrid_weight: weight of the words; None: no hybrid search.
        depth: length of the lists of reciprocal rank fusion; None: scores are added.
    """
    options: dict[str, Any] = {"qk": qk, "overlap_threshold": threshold}
    if hybrid_weight is not None:
        fusion = {"fusion": "sum"} if depth is None else {"fusion": "rrf", "depth": depth}
        options["hybrid"] = {**fusion, "words": hybrid_weight}
    return options


def evaluate_patch(deployment: Deployment, search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the section ``evaluate`` that measure searches with some options.

    They are ``systems`` if the deployment lists its systems, or if the search is hybrid, and else ``qk`` and
    ``thresholds``: the section excludes both together. A section with the short form keeps it, so that the weight and
    the fusion of a hybrid search stay those that it has. Lists of reciprocal rank fusion have the length
    ``evaluate.k`` there, as the section asks for.
    """
    given, hybrid = deployment.evaluate, search.get("hybrid")
    short = given is not None and given.model_fields_set & {"thresholds", "bm25", "hybrid"}
    if short or (hybrid is None and (given is None or given.systems is None)):
        return {"qk": search["qk"], "thresholds": [search["overlap_threshold"]]}
    options = {name: value for name, value in search.items() if name != "hybrid"}
    fused = {name: value for name, value in (hybrid or {}).items() if name != "depth"}
    kind: dict[str, Any] = {"kind": "hybrid", **fused} if fused else {"kind": "sparse"}
    # The baseline may be one of the systems that are replaced; a system without qk would take that of the section.
    systems = [{"kind": "bm25"}, {"name": "chosen", **kind, **options}]
    return {"systems": systems, "baseline": None, "qk": search["qk"]}


def write_report(
    output: str, name: str, result: Mapping[str, Any], chosen: Mapping[str, Any], options: Mapping[str, str]
) -> None:
    """Write a report as ``name`` and its ``patch.yaml`` to a folder or URI; files of these names are replaced.

    The comments of the patch are the choice and its search options.

    Args:
        output: folder or URI.
        name: name of the file of the report.
        result: the report as JSON values.
        chosen: the part of it that has ``patch``, ``search`` and ``sentence``.
        options: options of the object store.
    """
    place = output.rstrip("/")
    store_file(f"{place}/{name}", json.dumps(result, allow_nan=False).encode(), options)
    search = f"Search with {json.dumps(chosen['search'])}"
    lines = [chosen["sentence"], search, "Apply: --config DEPLOYMENT --config THIS_FILE"]
    head = "".join(f"# {' '.join(line.split())}\n" for line in lines)
    store_file(f"{place}/patch.yaml", (head + yaml.safe_dump(chosen["patch"])).encode(), options)
