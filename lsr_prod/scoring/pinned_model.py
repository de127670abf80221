"""The model of a teacher, pinned by its digest: every process opens it where it is and compares the digests."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lsr_prod.errors import ArtifactError, ConfigError, LineageError
from lsr_prod.model import model_digest
from lsr_prod.model.loading import local_folder
from lsr_prod.storage import is_remote
from lsr_prod.storage.folders import open_folder


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """Place and digest of a model.

    Attributes:
        place: URI, Hugging Face id, or absolute path that every node sees.
        digest: sha256 over all files of the folder.
        options: options of the object store.
    """

    place: str
    digest: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, place: str, options: Mapping[str, str], *, field: str) -> "PinnedModel":
        """Pin the model that is at a path, a URI or an id now."""
        try:
            folder = _folder(place, options)
        except ConfigError as error:
            raise ConfigError(field, error.problem, error.remedy) from error
        except ArtifactError as error:
            raise ConfigError(field, str(error), "give a folder, the URI of a stored folder, or an id") from error
        place = str(Path(place).absolute()) if Path(place).is_dir() else place
        return cls(place, model_digest(folder), dict(options))

    def open(self) -> Path:
        """Return the folder of the model on this node."""
        try:
            folder = _folder(self.place, self.options)
        except ConfigError as error:
            raise ArtifactError(
                f"the model {self.place} is not on node {socket.gethostname()}; give a URI (s3://...), or a folder "
                "that every node sees"
            ) from error
        if (found := model_digest(folder)) != self.digest:
            raise LineageError(
                f"the model {self.place} on node {socket.gethostname()} has the digest {found}, but the job was "
                f"planned with {self.digest}; restore that model, or start a job with another output"
            )
        return folder


def _folder(place: str, options: Mapping[str, str]) -> Path:
    return open_folder(place, options) if is_remote(place) else local_folder(place)
