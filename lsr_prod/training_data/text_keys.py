"""Keys of texts: texts with the same token ids have the same 64-bit key."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt


def text_keys(texts: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int64]:
    """Return the key of each text: 8 bytes of BLAKE2b of its token ids.

    Texts that differ only after the maximum length have the same token ids, so the model gives them the same vector.
    Among 1e8 different texts, the probability that any two have the same key is 3e-4.

    Returns:
        int64 [n], the same on every machine.
    """
    digests = b"".join(blake2b(text.astype("<i4", copy=False).tobytes(), digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<i8").astype(np.int64)
