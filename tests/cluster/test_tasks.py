"""Units of work on Ray: a bounded number is in flight, actors open once, and announced ends leave no room."""

import os
from pathlib import Path
from typing import Any

import pytest
import ray

from lsr_prod.cluster.tasks import Needs, room, run_on_actors, run_tasks
from lsr_prod.errors import ArtifactError


def double(number: int) -> int:
    return 2 * number


def note_opening(folder: str) -> str:
    (Path(folder) / str(os.getpid())).touch()
    return folder


def broken() -> None:
    raise ArtifactError("the model is damaged")


def process_of(folder: str, number: int) -> tuple[int, int]:
    return number, os.getpid()


def crash_once(folder: str, number: int) -> int:
    flag = Path(folder) / "crashed"
    if number == 2 and not flag.exists():
        flag.touch()
        os._exit(1)
    return number


def test_no_more_calls_than_allowed_are_in_flight(ray_local: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.cluster.tasks._IN_FLIGHT", 2)
    waited: list[int] = []
    wait = ray.wait
    monkeypatch.setattr("ray.wait", lambda calls, **rest: (waited.append(len(calls)), wait(calls, **rest))[1])
    assert dict(run_tasks(double, [(number,) for number in range(7)], task="a test")) == {i: 2 * i for i in range(7)}
    assert max(waited) == 2


@pytest.mark.long
def test_each_actor_opens_once(ray_local: None, tmp_path: Path) -> None:
    calls = [(number,) for number in range(9)]
    found = run_on_actors(lambda: note_opening(str(tmp_path)), process_of, calls, actors=2, task="", needs=Needs())
    results = dict(found)
    assert {call: number for call, (number, _) in results.items()} == {number: number for number in range(9)}
    assert {str(process) for _, process in results.values()} <= {path.name for path in tmp_path.iterdir()}
    assert len([*tmp_path.iterdir()]) <= 2


def test_lost_actor_opens_again_and_repeats_its_call(ray_local: None, tmp_path: Path) -> None:
    calls = [(number,) for number in range(4)]
    found = run_on_actors(lambda: note_opening(str(tmp_path)), crash_once, calls, actors=1, task="", needs=Needs())
    assert dict(found) == {number: number for number in range(4)}
    assert len([path for path in tmp_path.iterdir() if path.name != "crashed"]) == 2


def test_ray_does_not_complain_about_what_actors_share(ray_local: None, capfd: pytest.CaptureFixture[str]) -> None:
    shared = [ray.put("shared")]
    found = run_on_actors(lambda: ray.get(shared[0]), lambda state, _: state, [(1,)], actors=1, task="", needs=Needs())
    assert list(found) == [(0, "shared")]
    assert "object store" not in capfd.readouterr().err  # that a restarted actor may not find its arguments


def test_error_of_opening_is_raised_as_it_is(ray_local: None) -> None:
    with pytest.raises(ArtifactError, match="the model is damaged"):
        list(run_on_actors(broken, process_of, [(1,)], actors=1, task="a test", needs=Needs()))


def test_room_counts_cores_and_gpus_of_nodes_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    resources: list[dict[str, Any]] = [{"CPU": 8.0, "GPU": 1.0}, {"CPU": 5.0}, {"CPU": 64.0}, {"CPU": 64.0}]
    nodes = [{"NodeID": f"n{i}", "Alive": i != 3, "Resources": each} for i, each in enumerate(resources)]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("lsr_prod.cluster.tasks.draining_nodes", lambda: frozenset({"n2"}))
    assert room(Needs(cpus=2)) == 4 + 2
    assert room(Needs(cpus=2, gpus=1)) == 1
    assert room(Needs(cpus=9)) == 0
