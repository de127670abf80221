"""Tracker Weights & Biases: a run online, or offline files that ``wandb sync`` uploads later."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsr_prod.errors import MissingExtraError

_KEY = "WANDB_API_KEY"
_SECONDS = 60  # until an unreachable server is given up


class WeightsAndBiases:
    """Run of this name in a project; a run that is resumed is continued.

    The key comes from the environment (``WANDB_API_KEY``) or from ``wandb login``, and ``WANDB_MODE=offline`` keeps
    everything on the disk. Only the values of reports are sent: no code, no command line, nothing about the machine.
    Steps must increase, so steps that are repeated after a resumption are dropped.
    """

    def __init__(self, project: str, run: str, folder: Path) -> None:
        """Open the run."""
        wandb = import_wandb()
        entity, _, name = project.rpartition("/")
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, disable_job_creation=True, save_code=False,
            x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True, init_timeout=_SECONDS,
        )  # fmt: skip
        place = os.environ.get("WANDB_DIR") or str(folder)
        try:
            self._run: Any = wandb.init(
                project=name, entity=entity or None, id=run, name=run, dir=place, resume="allow", settings=settings
            )
        except Exception as error:  # noqa: BLE001 - raised again
            raise RuntimeError(_without_key(str(error))) from None  # the cause may contain the key

    def report(self, step: int, values: Mapping[str, float], now: float) -> None:  # noqa: ARG002 - the run has its own clock
        """Send the values of a step."""
        try:
            self._run.log(dict(values), step=step)
        except Exception as error:  # noqa: BLE001 - raised again
            raise RuntimeError(_without_key(str(error))) from None

    def close(self, *, failed: bool) -> None:
        """End the run, and wait until everything is sent or on the disk."""
        self._run.finish(exit_code=int(failed))


def import_wandb() -> Any:
    """Return the package."""
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError("wandb", "wandb") from error
    return wandb


def _without_key(text: str) -> str:
    key = os.environ.get(_KEY, "")
    return text.replace(key, "...") if key else text
