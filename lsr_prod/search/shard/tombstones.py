"""Tombstones: deleted documents of a shard."""

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError
from lsr_prod.formats.digest import read_file
from lsr_prod.formats.index import Tombstones


def read_alive(index: Path, tombstones: Tombstones, documents: int) -> npt.NDArray[np.uint8]:
    """Return uint8 [documents]: 0 for deleted documents, else 1."""
    ordinals = np.load(io.BytesIO(read_file(index, tombstones.file)), allow_pickle=False)
    if ordinals.dtype != np.uint32 or len(ordinals) != tombstones.documents or (ordinals >= documents).any():
        raise ArtifactError(f"{index / tombstones.file.path} does not fit its shard; publish another version")
    alive = np.ones(documents, np.uint8)
    alive[ordinals] = 0
    alive.flags.writeable = False
    return alive
