"""The manifests of Kubernetes, rendered and validated. `make infra-test` plants more faults."""

import os
from pathlib import Path

import pytest

from tests.infra.manifests.__main__ import OVERLAYS
from tests.infra.manifests.checks import problems
from tests.infra.manifests.mutations import KINDS, mutate
from tests.infra.manifests.render import ROOT, Manifest, render, render_with_kubectl
from tests.infra.manifests.schemas import KUBERAY, has_kuberay_schemas


@pytest.fixture(scope="module")
def _schemas() -> None:
    if not has_kuberay_schemas():
        if os.environ.get("CI"):
            pytest.fail(f"{KUBERAY} is missing")
        pytest.skip(f"there is no {KUBERAY}")


@pytest.fixture(scope="module", params=OVERLAYS)
def manifests(request: pytest.FixtureRequest) -> list[Manifest]:
    return render(ROOT / "overlays" / request.param)


@pytest.mark.usefixtures("_schemas")
def test_an_overlay_is_valid_and_agrees_with_the_code(manifests: list[Manifest]) -> None:
    assert problems(manifests) == []


def test_kubectl_renders_the_same(manifests: list[Manifest], request: pytest.FixtureRequest) -> None:
    rendered = render_with_kubectl(ROOT / "overlays" / str(request.node.callspec.params["manifests"]))
    if rendered is None:
        pytest.skip("kubectl is not installed")

    def by_name(all_of: list[Manifest]) -> dict[tuple[str, str], Manifest]:
        return {(one["kind"], one["metadata"]["name"]): one for one in all_of}

    assert by_name(rendered) == by_name(manifests)
    assert len(rendered) == len(manifests)


@pytest.mark.usefixtures("_schemas")
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_fault_is_found(kind: str) -> None:
    mutation = mutate(render(ROOT / "overlays/production-cpu"), kind, 7)
    assert mutation is not None
    assert problems(mutation.manifests), mutation.where


def test_unknown_features_of_kustomize_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("components: [a]\n")
    with pytest.raises(ValueError, match="components"):
        render(tmp_path)
