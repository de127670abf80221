"""The bundle of an encode job, pinned by its digest: every node opens it where it is and compares the digests."""

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray

from lsr_prod.errors import ArtifactError, LineageError
from lsr_prod.formats.bundle import BUNDLE_FILE
from lsr_prod.storage import is_remote
from lsr_prod.storage.folders import absolute, open_bundle


@dataclass(frozen=True, slots=True)
class PinnedBundle:
    """Place and digest of a bundle.

    Attributes:
        place: URI, or absolute path that every node sees.
        digest: digest of the bundle, which the sparse table records too.
        options: options of the object store.
    """

    place: str
    digest: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, place: str | Path, options: Mapping[str, str] | None = None) -> "PinnedBundle":
        """Pin the bundle that is at a path or URI now."""
        options = dict(options or {})
        return cls(absolute(str(place)), open_bundle(str(place), options)[1].digest, options)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``PinnedBundle(**value)`` reads them."""
        return asdict(self)

    def open(self) -> Path:
        """Return the folder of the bundle on this node, every file verified."""
        if not is_remote(self.place) and not (Path(self.place) / BUNDLE_FILE).is_file():
            raise ArtifactError(
                f"bundle {self.place} is not on node {_node()}; give a URI (s3://...) or a folder that every node sees"
            )
        folder, bundle = open_bundle(self.place, self.options)
        if bundle.digest != self.digest:
            raise LineageError(
                f"bundle {self.place} on node {_node()} has the digest {bundle.digest}, but the table is encoded with "
                f"{self.digest}; restore that bundle, or give it under a name that is not used again"
            )
        return folder


def _node() -> str:
    """Return the name of this machine, and its address in the cluster if this process belongs to one."""
    name = socket.gethostname()
    return f"{name} ({ray.util.get_node_ip_address()})" if ray.is_initialized() else name  # type: ignore[no-untyped-call]
