"""What schemas cannot see: names, paths, commands and settings that have to agree with each other and with the code."""

import json
from collections.abc import Callable, Iterator
from functools import cache

from tests.infra.manifests.job_checks import deployments, night, ray_settings, service
from tests.infra.manifests.metrics import metric_problems
from tests.infra.manifests.monitoring_checks import monitoring
from tests.infra.manifests.network_checks import selectors
from tests.infra.manifests.pod_checks import accounts, commands, images, security, volumes
from tests.infra.manifests.render import Manifest
from tests.infra.manifests.schemas import schema_problems

__all__ = ["problems"]

_CHECKS: tuple[Callable[[list[Manifest]], Iterator[str]], ...] = (
    images,
    security,
    volumes,
    accounts,
    ray_settings,
    commands,
    deployments,
    service,
    selectors,
    night,
    monitoring,
    metric_problems,
)


@cache
def _by_schema(manifest: str) -> tuple[str, ...]:
    """Validate a manifest once: a planted fault changes one of many."""
    return tuple(schema_problems(json.loads(manifest)))


def problems(manifests: list[Manifest], *, schemas: bool = True) -> list[str]:
    """Return every problem of the manifests of an overlay.

    Args:
        manifests: rendered.
        schemas: validate by the schemas first; the other checks need their form and run only without a finding.
    """
    texts = [json.dumps(manifest, sort_keys=True) for manifest in manifests] if schemas else []
    found = [problem for text in texts for problem in _by_schema(text)]
    if found:
        return found
    for check in _CHECKS:
        try:
            found += check(manifests)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            found.append(f"{check.__name__}: something is missing: {type(error).__name__}: {error}")
    return found
