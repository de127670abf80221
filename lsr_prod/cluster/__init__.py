"""The connection to Ray, and the settings that every use of Ray Data shares."""

from lsr_prod.cluster.session import ray_session

__all__ = ["ray_session"]
