"""Tasks on the nodes of encoders, where no core is free."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from lsr_prod.encoding.node_tasks import NodeTasks
from lsr_prod.errors import EncoderLostError, SourceError, WorkerError

pytestmark = pytest.mark.usefixtures("ray_local")


class _Busy:
    """Holds cores."""


@pytest.fixture
def no_core_is_free() -> Iterator[None]:
    actor: Any = ray.remote(_Busy).options(num_cpus=2).remote()
    ray.get(actor.__ray_ready__.remote())
    yield
    ray.kill(actor)


def here() -> str:
    return str(ray.get_runtime_context().get_node_id())


def squares(number: int) -> list[int]:
    return [number, number**2]


def note_time(folder: str, number: int) -> list[int]:
    began = time.time()
    time.sleep(0.1)
    draft = Path(folder) / f".{number}"
    draft.write_text(f"{began} {time.time()}")
    draft.rename(Path(folder) / str(number))  # the test never reads half a note
    return [number]


def crash(_: int) -> list[int]:
    os._exit(1)


def crash_once(flag: str) -> str:
    if not Path(flag).exists():
        Path(flag).touch()
        os._exit(1)
    return "done"


def fail() -> None:
    raise SourceError("the file has changed")


@pytest.mark.long
def test_tasks_run_where_no_core_is_free(no_core_is_free: None):
    started = NodeTasks(lambda: (here(),), threads=1).start(squares, [(number,) for number in range(5)], returns=2)
    assert [ray.get(values) for values in started] == [[number, number**2] for number in range(5)]


@pytest.mark.parametrize(("encoders", "threads", "at_most"), [(1, 1, 1), (2, 1, 2), (1, 4, 2)])
def test_encoder_has_room_for_a_task_per_two_cores(tmp_path: Path, encoders: int, threads: int, at_most: int):
    tasks = NodeTasks(lambda: (here(),) * encoders, threads)
    tasks.start(note_time, [(str(tmp_path), number) for number in range(5)], returns=1)
    while len(spans := [tuple(map(float, file.read_text().split())) for file in tmp_path.glob("[0-9]")]) < 5:
        time.sleep(0.01)
    assert max(sum(began <= start < end for began, end in spans) for start, _ in spans) <= at_most


def test_lost_task_ends_the_call(no_core_is_free: None):
    with pytest.raises(RayError):
        NodeTasks(lambda: (here(),), threads=1).start(crash, [(number,) for number in range(3)], returns=1)


def test_results_are_asked_for_again_after_a_lost_process(tmp_path: Path):
    tasks = NodeTasks(lambda: (here(),), threads=1)
    assert tasks.run(crash_once, [(str(tmp_path / "flag"),)], task="a test") == ["done"]
    with pytest.raises(SourceError, match="the file has changed"):
        tasks.run(fail, [()], task="a test")
    with pytest.raises(WorkerError, match="a test"):
        tasks.run(crash, [(1,)], task="a test")


def test_call_without_an_encoder_waits_until_it_is_interrupted():
    encoders: list[str] = []
    tasks = NodeTasks(lambda: tuple(encoders), threads=1)
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(tasks.run(squares, [(3,)], task="a test"))
        except EncoderLostError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.2)
    assert found == []
    tasks.interrupt()
    thread.join(10)
    assert [str(each) for each in found] == ["tasks beside the encoders were interrupted"]
    encoders.append(here())
    call()
    assert found[1:] == [[[3, 9]]]
