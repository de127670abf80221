"""Learned weights of output terms: the weights of inference-free queries with ``query_encoder: learned``.

A query's vector is the binary presence of its terms, times one trained weight per output term (Li-LSR, Nardini et al.,
arXiv 2505.01452). The weights are part of the model, so a model directory and a bundle contain them, and an index has
them in the copy of its bundle: versions of one bundle share them, and another table is another bundle digest.
"""

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from lsr_prod.errors import ArtifactError

QUERY_WEIGHTS_FILE = "query_weights.npy"


def weights_to_bytes(weights: npt.NDArray[Any]) -> bytes:
    """Return the content of ``query_weights.npy``: float32 [V]."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, weights.astype("<f4"), version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def weights_from_bytes(data: bytes, vocabulary_size: int, name: str) -> npt.NDArray[np.float32]:
    """Read what ``weights_to_bytes`` wrote.

    Returns:
        float32 [V], finite and above 0.
    """
    try:
        values: npt.NDArray[np.float32] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ArtifactError(f"{name} is no array ({error}); copy it again") from error
    if values.dtype != np.float32 or values.shape != (vocabulary_size,):
        raise ArtifactError(
            f"{name} has {values.dtype} {list(values.shape)}, not {vocabulary_size} weights; copy it again"
        )
    if not (np.isfinite(values) & (values > 0)).all():
        raise ArtifactError(f"{name} has weights that are not finite or not above 0; train the model again")
    return values
