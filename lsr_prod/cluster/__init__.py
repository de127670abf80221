"""Connection to Ray, tasks, partitions, and errors of workers."""

from lsr_prod.cluster.session import ray_session

__all__ = ["ray_session"]
