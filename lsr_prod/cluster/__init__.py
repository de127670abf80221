"""Connection to Ray, shared settings of Ray Data, tasks, and errors of workers."""

from lsr_prod.cluster.session import ray_session

__all__ = ["ray_session"]
