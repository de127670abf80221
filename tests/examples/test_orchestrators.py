"""The files for cron, Airflow and Dagster run the nightly job.

Airflow and Dagster are not installed here: stand-ins of the few names that the files import run the functions below
their decorators, so that the command is the real one.
"""

import fcntl
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import ray

from lsr_prod.storage import Store
from lsr_prod.storage.publications import find_current_publication

FOLDER = Path(__file__).parents[2] / "examples" / "orchestrators"


@pytest.fixture
def config(tmp_path: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, ray_local: None) -> Iterator[Path]:
    """The deployment of a small corpus in ``$HOME/search``; commands of the environment are found by their names."""
    folder = tmp_path / "search"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "a lock"}\n{"_id": "b", "text": "a date"}\n')
    table, bundle = str(folder / "table"), str(tiny_bundle)
    sections = {
        "source": {"paths": [str(folder / "corpus.jsonl")], "text_fields": ["text"], "stored_fields": ["text"]},
        "encode": {"bundle": bundle, "table": table},
        "index": {"table": table, "bundle": bundle, "output": str(folder / "index"), "text_fields": ["text"]},
        "ray": {"address": ray.get_runtime_context().gcs_address},
    }
    path = folder / "deployment.yaml"
    path.write_text(json.dumps(sections))
    token = os.environ.get("RAY_AUTH_TOKEN_PATH") or str(Path.home() / ".ray" / "auth_token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", token)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
    (tmp_path / "lsr-prod").mkdir()
    (tmp_path / "lsr-prod" / ".venv").symlink_to(sys.prefix)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield path
    for name in ("night", "airflow_dag", "dagster_definitions"):
        sys.modules.pop(name, None)


def cron_command() -> str:
    """Return the command of the crontab: what follows the five fields of time."""
    (line,) = [line for line in (FOLDER / "crontab").read_text().splitlines() if not line.startswith("#")]
    return line.split(maxsplit=5)[5]


def published(config: Path) -> int:
    found = find_current_publication(Store(str(config.parent / "index")))
    return 0 if found is None else found.number


@pytest.mark.long
def test_cron_line_publishes_and_a_second_night_at_the_same_time_ends(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as cron has it
    subprocess.run(["/bin/sh", "-c", cron_command()], check=True)
    assert published(config) == 1
    with (config.parent / "night.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert subprocess.run(["/bin/sh", "-c", cron_command()], check=False).returncode == 1


@pytest.mark.long
def test_files_of_airflow_and_dagster_run_the_night_and_repeat_no_wrong_setting(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Callable[[], Any]] = []
    stand_ins(monkeypatch, calls)
    import_module("airflow_dag")
    dagster = import_module("dagster_definitions")
    (dag,) = calls
    given = {"/srv/search/deployment.yaml": str(config)}
    night = import_module("night")
    real = night.run_night
    for name in ("airflow_dag", "dagster_definitions"):
        monkeypatch.setattr(sys.modules[name], "run_night", lambda place: real(given[place]))
    result = dag()
    assert published(config) == 1
    assert dagster.search_index().metadata["index.publication"] == result["index.publication"] == 1
    config.write_text(config.read_text().replace('"encode"', '"encoder"'))
    for run, error in ((dag, "AirflowFailException"), (dagster.search_index, "Failure")):
        with pytest.raises(Exception, match="exit code 2") as raised:
            run()
        assert type(raised.value).__name__ == error


def stand_ins(monkeypatch: pytest.MonkeyPatch, dags: list[Callable[[], Any]]) -> None:
    """Add modules with the names that the files import; ``dags`` gets the task that a DAG calls."""

    def keep(**_: Any) -> Callable[..., Any]:
        return lambda function: function

    def task(**_: Any) -> Callable[..., Any]:
        return lambda function: lambda *arguments: dags.append(lambda: function(*arguments))

    class AirflowFailException(Exception):  # noqa: N818 (its name)
        pass

    class Failure(Exception):  # noqa: N818 (its name)
        def __init__(self, description: str, *, allow_retries: bool) -> None:
            assert not allow_retries
            super().__init__(description)

    modules = {
        "airflow": {},
        "airflow.sdk": {"dag": keep, "task": task},
        "airflow.sdk.exceptions": {"AirflowFailException": AirflowFailException},
        "dagster": {
            "asset": keep,
            "Failure": Failure,
            **dict.fromkeys(("RetryPolicy", "MaterializeResult", "ScheduleDefinition", "Definitions"), SimpleNamespace),
        },
    }
    for name, names in modules.items():
        module = ModuleType(name)
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, module)
