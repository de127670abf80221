"""Workers, cores and GPUs of a training: those of the settings, and where they say nothing, those of the cluster."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ray

from lsr_prod.config import FinetuneSettings, RaySettings, TrainSettings
from lsr_prod.config.language import LanguageSettings
from lsr_prod.errors import ConfigError
from lsr_prod.logs import get_log

log = get_log(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and GPUs of one machine of the cluster."""

    cores: float
    gpus: float


def machines() -> list[Machine]:
    """Return the machines of the connected cluster that have cores."""
    found = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    return [Machine(one["CPU"], one.get("GPU", 0)) for one in found if one.get("CPU", 0) >= 1]


def with_resources(train: TrainSettings, settings: RaySettings, accepts: Callable[[int], bool]) -> TrainSettings:
    """Return the settings with all resources chosen, and log them in one line; needs a connection to Ray.

    On a local cluster, ``OMP_NUM_THREADS`` limits the cores that are chosen; in a submitted job Ray sets it by itself.
    """
    local = not (settings.address or os.environ.get("RAY_ADDRESS"))
    threads = os.environ.get("OMP_NUM_THREADS", "") if local else ""
    found = machines()
    chosen = choose_resources(train, found, accepts, int(threads) if threads.isdecimal() else None)
    assert chosen.workers is not None
    assert chosen.cpus_per_worker is not None
    _log(chosen, chosen.workers, chosen.cpus_per_worker, found)
    return chosen


def choose_resources(
    train: TrainSettings, found: Sequence[Machine], accepts: Callable[[int], bool], threads: int | None = None
) -> TrainSettings:
    """Return the settings with ``use_gpu``, ``workers`` and ``cpus_per_worker`` where they are unset.

    With GPUs there is one worker per GPU, else one worker per machine: the threads of a worker share one copy of the
    model and exchange no gradients. The cores of the machines are divided evenly among the workers.
    """
    gpus = int(sum(machine.gpus for machine in found))
    use_gpu = gpus >= max(1, train.workers or 1) if train.use_gpu is None else train.use_gpu
    trained = [one for one in train.stages if isinstance(one, FinetuneSettings | LanguageSettings)]
    if not use_gpu and any(one.scale.attention == "flash" for one in trained):
        raise ConfigError("scale.attention", "flash needs GPUs, and none are used", "leave it out")
    workers = train.workers
    if workers is None:
        most = max(1, gpus if use_gpu else len(found))
        workers = next((number for number in range(most, 1, -1) if accepts(number)), 1)
        if train.min_workers is not None and train.min_workers > workers:
            raise ConfigError(
                "train.min_workers",
                f"it is {train.min_workers}, but this cluster has room for {workers}",
                "lower it, or set train.workers",
            )
    cores = train.cpus_per_worker
    if cores is None:
        cores = _cores(workers, found, use_gpu)
        cores = float(min(cores, threads) if threads else cores)
    return train.model_copy(update={"use_gpu": use_gpu, "workers": workers, "cpus_per_worker": cores})


def _cores(workers: int, found: Sequence[Machine], use_gpu: bool) -> int:
    """Return the largest number of cores per worker with which all workers have room on the machines, at least 1."""

    def room(cores: int) -> float:
        return sum(min(machine.cores // cores, machine.gpus if use_gpu else workers) for machine in found)

    most = int(max((machine.cores for machine in found), default=1))
    return next((cores for cores in range(most, 1, -1) if room(cores) >= workers), 1)


def _log(train: TrainSettings, workers: int, cores: float, found: Sequence[Machine]) -> None:
    every = sum(machine.cores for machine in found)
    of_gpus = f" and 1 GPU each (of {sum(one.gpus for one in found):g} GPUs)" if train.use_gpu else ""
    each = " each" if workers > 1 else ""
    message = f"training on {_plural(workers, 'worker')} with {_plural(cores, 'core')}{each} (of {every:g}){of_gpus}"
    log.info(message, extra={"fields": {"workers": workers, "cores_per_worker": cores, "use_gpu": train.use_gpu}})


def _plural(number: float, noun: str) -> str:
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {noun}s"
