"""Faults planted into rendered manifests: typing errors, wrong types, missing fields, images, paths and metrics."""

import copy
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.infra.manifests.render import Manifest

__all__ = ["KINDS", "Mutation", "mutate"]

_Path = tuple[str | int, ...]
# Keys below these are names of the user, not of a schema.
_FREE = {"labels", "matchLabels", "annotations", "nodeSelector", "data", "limits", "requests", "rayStartParams"}
_SCHEMA_ROOTS = {"spec", "rules", "roleRef", "subjects"}
_NEEDED = (
    *("image", "resources", "securityContext", "serviceAccountName", "volumes", "volumeMounts", "mountPath", "envFrom"),
    *("entrypoint", "rayVersion", "authOptions", "groupName", "maxReplicas", "rayStartParams", "template", "suspend"),
    *("schedule", "concurrencyPolicy", "activeDeadlineSeconds", "subjects", "roleRef", "verbs", "podSelector"),
    *("policyTypes", "selector", "serveConfigV2", "submitterPodTemplate", "emptyDir", "sizeLimit", "preStop", "expr"),
    *("terminationGracePeriodSeconds", "runAsNonRoot", "readOnlyRootFilesystem", "capabilities", "podMetricsEndpoints"),
)


@dataclass(frozen=True)
class Mutation:
    """A planted fault.

    Attributes:
        kind: one of ``KINDS``.
        where: manifest and path.
        manifests: with the fault.
    """

    kind: str
    where: str
    manifests: list[Manifest]


def _walk(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    yield path, value
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _walk(item, (*path, name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _walk(item, (*path, i))


def _is_schema(path: _Path) -> bool:
    return bool(path) and path[0] in _SCHEMA_ROOTS and not _FREE.intersection(path[:-1])


def _misspell(name: str, rng: random.Random) -> str:
    at = rng.randrange(len(name))
    return rng.choice([name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:]]) or "x"


def _typing_error(path: _Path, value: Any, rng: random.Random) -> Any:
    if _is_schema(path) and len(path) > 1 and isinstance(path[-1], str):
        return lambda parent, name: parent.__setitem__(_misspell(name, rng), parent.pop(name))
    return None


def _wrong_type(path: _Path, value: Any, rng: random.Random) -> Any:
    if _is_schema(path) and isinstance(value, str | int | bool):
        wrong = rng.choice([{"wrong": "type"}, ["wrong"]])
        return lambda parent, name: parent.__setitem__(name, wrong)
    return None


def _missing_field(path: _Path, value: Any, rng: random.Random) -> Any:
    if path and path[-1] in _NEEDED and _is_schema(path):
        return lambda parent, name: parent.pop(name)
    return None


def _wrong_image(path: _Path, value: Any, rng: random.Random) -> Any:
    if path and path[-1] == "image":
        wrong = rng.choice([value.replace("lsr-prod/", "lsr/"), value.partition(":")[0], value.replace("s:", ":")])
        return lambda parent, name: parent.__setitem__(name, wrong if wrong != value else "lsr-prod/search")
    return None


def _wrong_path(path: _Path, value: Any, rng: random.Random) -> Any:
    if (
        isinstance(value, str)
        and path
        and (path[-1] in ("mountPath", "entrypoint", "serveConfigV2") or "command" in path)
    ):
        found = list(re.finditer(r"/(etc|opt|cache|tmp|dev)(/[\w.-]+)*", value))
        if found:
            match = rng.choice(found)
            end = match.end() - 1
            return lambda parent, name: parent.__setitem__(name, value[:end] + value[end + 1 :])
    return None


def _unknown_metric(path: _Path, value: Any, rng: random.Random) -> Any:
    if isinstance(value, str) and path and (path[-1] == "expr" or "data" in path):
        found = re.findall(r"\b(?:lsr_prod|ray_lsr_prod)_\w+", value)
        if found:
            name = rng.choice(found)
            return lambda parent, key: parent.__setitem__(key, value.replace(name, _misspell(name, rng)))
    return None


_Rule = Callable[[_Path, Any, random.Random], Any]
_RULES: dict[str, _Rule] = {
    "typing error": _typing_error,
    "wrong type": _wrong_type,
    "missing field": _missing_field,
    "wrong image": _wrong_image,
    "wrong path": _wrong_path,
    "unknown metric": _unknown_metric,
}
KINDS = tuple(_RULES)


def mutate(manifests: list[Manifest], kind: str, seed: int) -> Mutation | None:
    """Plant one fault of a kind; None if the manifests have no place for it."""
    rng = random.Random(f"{kind}:{seed}")
    made = copy.deepcopy(manifests)
    places = []
    for manifest in made:
        for path, value in _walk(manifest):
            change = _RULES[kind](path, value, rng)
            if change is not None:
                places.append((manifest, path, change))
    if not places:
        return None
    manifest, path, change = rng.choice(places)
    where = f"{manifest['kind']} {manifest['metadata']['name']}: {'.'.join(map(str, path))}"
    parent: Any = manifest
    for name in path[:-1]:
        parent = parent[name]
    change(parent, path[-1])
    return Mutation(kind, where, made)
