from pathlib import Path

from lsr_prod.inference import BundleEncoder


def test_the_bundle_opens(tiny_bundle: Path) -> None:
    assert len(BundleEncoder(tiny_bundle, verify=True).encode(["hello"], kind="query").terms)
