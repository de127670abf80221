"""Tombstones: deleted documents of a shard."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError, DigestMismatchError
from lsr_prod.formats.digest import digest_path
from lsr_prod.formats.index import Tombstones

__all__ = ["read_alive"]


def read_alive(index: Path, tombstones: Tombstones, documents: int) -> npt.NDArray[np.uint8]:
    """Return uint8 [documents]: 0 for deleted documents, else 1.

    Args:
        index: the index folder.
        tombstones: the tombstones of one shard.
        documents: N of that shard.

    Raises:
        ArtifactError: the file is missing, damaged, or does not fit the shard.
    """
    path = index / tombstones.file.path
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; fetch the index again, or publish another version")
    if digest_path(path) != tombstones.file.sha256:
        raise DigestMismatchError(f"{path} differs from its recorded sha256; fetch the index again")
    ordinals = np.load(path, allow_pickle=False)
    if ordinals.dtype != np.uint32 or len(ordinals) != tombstones.documents or (ordinals >= documents).any():
        raise ArtifactError(f"{path} does not fit its shard; publish another version")
    alive = np.ones(documents, np.uint8)
    alive[ordinals] = 0
    alive.flags.writeable = False
    return alive
