"""Bundles for tests, pinned as a job pins them."""

from collections.abc import Mapping
from pathlib import Path

from lsr_prod.encoding.passages import PinnedBundle
from lsr_prod.storage.folders import absolute, open_bundle

__all__ = ["pin"]


def pin(place: str | Path, options: Mapping[str, str] | None = None) -> PinnedBundle:
    """Pin the bundle that is at a path or URI now."""
    options = dict(options or {})
    return PinnedBundle(absolute(str(place)), open_bundle(str(place), options)[1].digest, options)
