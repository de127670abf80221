"""What schemas cannot see: names, paths, commands and settings that have to agree with each other and with the code."""

from collections.abc import Callable, Iterator

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


def problems(manifests: list[Manifest], *, schemas: bool = True) -> list[str]:
    """Return every problem of the manifests of an overlay.

    Args:
        manifests: rendered.
        schemas: validate by the schemas first; the other checks need their form and run only without a finding.
    """
    found = [problem for manifest in manifests for problem in schema_problems(manifest)] if schemas else []
    if found:
        return found
    for check in _CHECKS:
        try:
            found += check(manifests)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            found.append(f"{check.__name__}: something is missing: {type(error).__name__}: {error}")
    return found
