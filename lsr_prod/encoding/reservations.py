"""Cores that the parts of an encode job reserve, so that reading and encoding run side by side on every core.

An actor leaves half a core free, and a read task takes half a core. So the rows of the next wave are read while every
core encodes, and other jobs of the cluster see what this one takes.
"""

from lsr_prod.config import EncodeSettings

__all__ = ["READING_CORES", "actor_cores"]

READING_CORES = 0.5
"""Cores that a read task reserves. Every task that runs while the pool lives reserves as much or less."""


def actor_cores(settings: EncodeSettings) -> float:
    """Return the cores that an encoder actor reserves."""
    return settings.threads_per_actor - READING_CORES
