"""Two users of one machine, one after the other, train, resume and search; they share an object store and a /tmp."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lsr_prod.storage import Store
from lsr_prod.storage.folders import save_folder
from tests.indexing.corpus import encode_corpus, make_index
from tests.indexing.remote import send
from tests.training.small import small_start, small_training

ROOT = Path(__file__).parents[2]
STEPS = 150
SEARCH = """
import json, sys
from lsr_prod import Searcher
with Searcher.open(sys.argv[1], storage_options=json.loads(sys.argv[2])) as searcher:
    print(searcher.search("how do threads share a lock").hits[0].doc_id)
"""

pytestmark = pytest.mark.root


@dataclass(frozen=True)
class User:
    """A user without a name, who may read the checkout wherever it is, and write only what is theirs."""

    number: int
    home: Path

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start Python with the environment that a login has."""
        rights = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
        user = (f"--reuid={self.number}", f"--regid={self.number}", "--clear-groups", *rights)
        own = ("RAY_TMPDIR", "XDG_CACHE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in own}
        environment |= {"HOME": str(self.home), "TMPDIR": str(self.home.parent / "tmp"), "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen(
            ["setpriv", *user, sys.executable, *arguments],
            cwd=self.home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def users() -> Iterator[list[User]]:
    """Two users with homes, and a folder of temporary files that both may write."""
    with tempfile.TemporaryDirectory(prefix="two-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        users = [User(20001, folder / "one"), User(20002, folder / "two")]
        for user in users:
            user.home.mkdir(mode=0o700)
            os.chown(user.home, user.number, user.number)
        try:
            yield users
        finally:  # a job that failed here must not fail other tests
            kill_processes(*users)


def end(process: "subprocess.Popen[str]", user: User) -> None:
    """Kill a job with all that it started."""
    kill_processes(user)
    process.communicate(timeout=60)


def kill_processes(*users: User) -> None:
    numbers = {user.number for user in users}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.uids().real in numbers:
                process.kill()


def output_of(process: "subprocess.Popen[str]") -> str:
    output, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    return output


def checkpoints(store: Store) -> list[str]:
    """Names of the reports of the checkpoints, oldest first; the last may be incomplete."""
    return sorted(name for name in store.names() if "/checkpoint_" in name and name.endswith("/steps.jsonl"))


def reports(store: Store, name: str) -> list[str]:
    content = store.get(name)
    assert content is not None
    return content.decode().splitlines()


@pytest.mark.long
def test_second_user_resumes_training_of_first(users: list[User], tmp_path: Path, s3_options: dict[str, str]) -> None:
    one, two = users
    work = f"s3://lsr/{tmp_path.name}"
    save_folder(small_start(tmp_path / "start"), f"{work}/start", s3_options)
    settings = small_training(tmp_path, tmp_path / "start", steps=STEPS, checkpoint_every=10)
    settings["train"] |= {"model": f"{work}/start", "work": work, "output": f"{work}/model"}
    settings |= {"storage": {"options": s3_options}, "ray": {"num_cpus": 2}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    command = ("-m", "tests.faults.training.driver", str(tmp_path / "settings.json"))

    first = one.start(*command)
    store, deadline = Store(work, s3_options), time.monotonic() + 240
    while len(checkpoints(store)) < 2:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    saved = reports(store, checkpoints(store)[0])
    end(first, one)

    output = output_of(two.start(*command))
    assert json.loads(output.splitlines()[-1])["output"] == f"{work}/model"
    trained = reports(store, checkpoints(store)[-1])
    assert len(trained) == STEPS
    assert trained[: len(saved)] == saved  # times are part of it: the second user did not train these steps again
    output_of(one.start(*command))  # finds the model of the second user


@pytest.mark.long
def test_users_search_one_index_with_caches_of_their_own(
    users: list[User], tiny_bundle: Path, tmp_path: Path, s3_options: dict[str, str]
) -> None:
    texts = {"lock": "A lock is released by the thread that holds it.", "sqrt": "Return the square root of a number."}
    index = f"s3://lsr/{tmp_path.name}/index"
    local = tmp_path / "index"
    send(local, make_index(local, encode_corpus(tiny_bundle, texts), bundle=tiny_bundle), Store(index, s3_options))
    for user in (*users, users[0]):
        assert output_of(user.start("-c", SEARCH, index, json.dumps(s3_options))) == "lock\n"
