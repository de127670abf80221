"""Private and unstable interfaces of Ray Train: the only module of the training that uses them.

Ray Train's trainer is not made for a local Ray without dashboard, nor for a controller that is killed:

- Placement groups of a dead controller are released by a detached actor, which asks Ray's dashboard whether the
  controller is alive, and waits forever if there is none: no new controller would get the resources. Here the driver
  releases them itself (``held_groups``, ``release_groups``).
- The handler of Ctrl-C aborts the controller, which is indistinguishable from its death, and stays installed after the
  run. Without it, Ctrl-C ends the job, and its connection to Ray ends its actors.
- The list of checkpoints is rewritten in place (``CHECKPOINT_LIST``), so that a kill can damage it; ``resumption``
  reads and removes it.

An upgrade of Ray that moves one of these names fails at import, or in the tests of resumption.
"""

from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.result import Result as Result
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

CHECKPOINT_LIST = "checkpoint_manager_snapshot.json"
"""File name of Ray Train's list of checkpoints, in the folder of a run."""

CHECKPOINT_PREFIX = "checkpoint_"
"""Prefix of the folders of checkpoints."""


class RayTrainer(DataParallelTrainer):
    """Ray Train's trainer without the cleaner of placement groups and the handler of Ctrl-C."""

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        return [one for one in callbacks if not isinstance(one, PlacementGroupCleanerCallback)]

    def _register_sigint_handler(self, controller: Any) -> None:
        """Install no handler."""


def held_groups() -> set[str]:
    """Return the ids of this job's placement groups that are not removed."""
    job = ray.get_runtime_context().get_job_id()
    groups: dict[str, dict[str, Any]] = placement_group_table()
    return {name for name, group in groups.items() if name.endswith(job) and group["state"] != "REMOVED"}


def release_groups(names: set[str]) -> None:
    """Remove placement groups, so that a new controller gets their resources."""
    for name in names:
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(name))))


def listed_checkpoints(content: Any) -> set[str]:
    """Return the folder names in a list of checkpoints."""
    return {str(one["checkpoint_dir_name"]) for one in content["checkpoint_results"]}
