"""Ray Train's trainer without three of its habits, none of which survives a local Ray or a killed controller."""

from typing import Any, cast

import ray
from ray._raylet import PlacementGroupID
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.result import Result
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

__all__ = ["RayTrainer"]


class RayTrainer(DataParallelTrainer):
    """Runs a function on a group of workers and starts them again when some are lost.

    What a dead controller held is released here. Ray Train leaves that to a detached actor, which asks Ray's dashboard
    whether the controller is alive, and waits for ever where there is none: no new controller would get its machines.
    """

    def fit(self) -> Result:
        """Run to the end.

        Raises:
            ray.train.TrainingFailedError: workers failed too often.
            ray.exceptions.RayActorError: the controller died; what it held is free again.
        """
        others = _held()
        try:
            return cast("Result", super().fit())
        except ray.exceptions.RayActorError:
            for name in _held() - others:
                remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(name))))
            raise

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        return [one for one in callbacks if not isinstance(one, PlacementGroupCleanerCallback)]

    def _register_sigint_handler(self, controller: Any) -> None:
        """Ctrl-C ends the job, and with its connection to Ray its actors.

        Ray Train's handler would abort the controller, which looks as if it had died, and would stay after the run.
        """


def _held() -> set[str]:
    """Placement groups of this job that are not removed."""
    job = ray.get_runtime_context().get_job_id()
    groups: dict[str, dict[str, Any]] = placement_group_table()
    return {name for name, group in groups.items() if name.endswith(job) and group["state"] != "REMOVED"}
