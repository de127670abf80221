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
    *, qk: int | None, threshold: float, hybrid_weight: float | None, fusion: str = "sum"
) -> dict[str, Any]:
    """Return keyword arguments of ``Searcher.search``; ``hybrid`` holds those of ``Hybrid``."""
    options: dict[str, Any] = {"qk": qk, "overlap_threshold": threshold}
    if hybrid_weight is not None:
        options["hybrid"] = {"fusion": fusion, "words": hybrid_weight}
    return options


def evaluate_patch(deployment: Deployment, search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the section ``evaluate`` that measure searches with some options.

    They are ``systems`` if the deployment lists its systems, and else ``qk`` and ``thresholds``: the section excludes
    both together.
    """
    if deployment.evaluate is None or deployment.evaluate.systems is None:
        return {"qk": search["qk"], "thresholds": [search["overlap_threshold"]]}
    hybrid = search.get("hybrid")
    options = {name: value for name, value in search.items() if name != "hybrid"}
    kind: dict[str, Any] = {"kind": "sparse"} if hybrid is None else {"kind": "hybrid", **hybrid}
    return {"systems": [{"kind": "bm25"}, {"name": "chosen", **kind, **options}]}


def write_patch(place: str, patch: Patch, sentence: str, search: Mapping[str, Any], options: Mapping[str, str]) -> None:
    """Write a patch to a path or URI, with the choice and its search options as comments; replace a file there."""
    lines = [sentence, f"Search with {json.dumps(search)}", "Apply: --config DEPLOYMENT --config THIS_FILE"]
    head = "".join(f"# {' '.join(line.split())}\n" for line in lines)
    content = head + yaml.safe_dump({section: dict(fields) for section, fields in patch.items()})
    store_file(place, content.encode(), options)
