"""Connection to Ray, and shared settings of Ray Data."""

from lsr_prod.cluster.session import ray_session

__all__ = ["ray_session"]
