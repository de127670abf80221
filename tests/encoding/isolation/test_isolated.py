import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import ray

from lsr_prod.config import EncodeSettings
from lsr_prod.encoding.cells.cell import encode_batches
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.encoding.passages import document_factory
from lsr_prod.errors import (
    EncoderBrokenError,
    EncoderCrashedError,
    EncoderError,
    EncoderRaisedError,
    EncoderTimeoutError,
)
from lsr_prod.inference import BundleEncoder
from tests.encoding import poison_encoder
from tests.encoding.pinned import pin
from tests.encoding.poison_encoder import poison_factory, term_of

SETTINGS = EncodeSettings(bundle="b", table="t", store_k=8, batch_tokens=64)
SHORT_S = 2.0  # longer than a busy machine needs for a word


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt: worker processes of a parallel test run ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_child_returns_the_vectors_of_an_encoder_in_this_process(tiny_bundle: Path):
    texts = ["a quick fox", "", "\0 null", "naïve 日本 \U0001f98a", "word " * 5000] * 20
    expected = BundleEncoder(tiny_bundle).encode(texts, kind="document", top_k=8, batch_tokens=64)
    with IsolatedEncoder(document_factory(pin(tiny_bundle), SETTINGS, threads=1), timeout_s=60) as encoder:
        for _ in range(2):
            found = encoder.encode(texts)
            for name in ("offsets", "terms", "weights"):
                assert np.array_equal(getattr(found, name), getattr(expected, name))
        assert len(encoder.encode([])) == 0
        assert encoder.starts == 1


@pytest.mark.long
def test_child_starts_on_demand_and_again_after_a_crash():
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        assert encoder.starts == 0
        for word, cause in {
            "SEGFAULT": "SIGSEGV",
            "ABORT": "SIGABRT",
            "EXIT": "exit code 3",
            "KILL": "SIGKILL",
        }.items():
            with pytest.raises(EncoderCrashedError, match=cause):
                encoder.encode(["one", word])
            assert encoder.encode(["after"]).terms.tolist() == [term_of("after")]
        assert encoder.starts == 5


@pytest.mark.long
@pytest.mark.parametrize("word", ["SPIN", "HOLD"])
def test_child_that_does_not_answer_is_ended_and_replaced(word: str):
    with IsolatedEncoder(poison_factory(), timeout_s=SHORT_S) as encoder:
        started = time.monotonic()
        with pytest.raises(EncoderTimeoutError, match="within 2 s"):
            encoder.encode([word])
        assert time.monotonic() - started >= SHORT_S
        assert encoder.encode(["after"]).terms.tolist() == [term_of("after")]
        assert encoder.starts == 2


def test_exception_of_the_encoder_keeps_the_child_running():
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        for _ in range(30):
            with pytest.raises(EncoderRaisedError, match=r"^RuntimeError: the graph failed$"):
                encoder.encode(["RAISE"])
        assert encoder.starts == 1


def test_output_of_the_model_does_not_mix_with_answers():
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        for text in ("PRINT a", "b"):
            assert encoder.encode([text]).terms.tolist() == [term_of(text)]
        assert encoder.starts == 1


def test_single_text_fails_only_after_a_second_crash(tmp_path: Path):
    factory = EncoderFactory(f"{poison_encoder.__name__}:open_first_time", {"memory": str(tmp_path / "met")})
    with IsolatedEncoder(factory, timeout_s=60) as encoder:
        assert encoder.encode(["ONCE"]).terms.tolist() == [term_of("ONCE")]
        assert encoder.starts == 2


def test_child_that_ended_between_two_calls_is_replaced(tmp_path: Path):
    with IsolatedEncoder(poison_factory(tmp_path / "pid"), timeout_s=60) as encoder:
        encoder.encode(["a"])
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until its last thread has ended
        assert len(encoder.encode(["a", "b"])) == 2
        assert encoder.starts == 2


def test_answer_of_an_interrupted_request_is_not_returned_to_the_next(interruptible: None):
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        encoder.encode(["warm"])
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(["SLEEP"])
        timer.join()
        assert encoder.encode(["next"]).terms.tolist() == [term_of("next")]
        assert encoder.starts == 2


@pytest.mark.parametrize("how", ["SEGFAULT", "RAISE", "SLEEP"])
def test_model_that_does_not_open_raises_encoder_broken_error(how: str):
    factory = EncoderFactory(f"{poison_encoder.__name__}:open_broken", {"how": how})
    with IsolatedEncoder(factory, timeout_s=60, start_timeout_s=3) as encoder:
        for attempt in (1, 2):
            with pytest.raises(EncoderBrokenError, match="cannot be opened"):
                encode_batches(encoder, ["a", "b"])
            assert encoder.starts == attempt


@pytest.mark.long
def test_model_that_crashes_on_every_text_is_broken_after_few_starts():
    texts = [f"SEGFAULT {i}" for i in range(1000)]
    with IsolatedEncoder(poison_factory(), timeout_s=60, most_in_a_row=3) as encoder:
        with pytest.raises(EncoderBrokenError, match=r"3 documents in a row, .* SIGSEGV"):
            encode_batches(encoder, texts, batch_size=ISOLATED_BATCH_SIZE)
        assert encoder.starts <= 2 * 3 + 6


@pytest.mark.long
def test_successful_call_resets_the_count_of_crashes():
    with IsolatedEncoder(poison_factory(), timeout_s=60, most_in_a_row=2) as encoder:
        for i in range(3):
            with pytest.raises(EncoderCrashedError):
                encoder.encode([f"EXIT {i}"])
            encoder.encode(["good"])
        with pytest.raises(EncoderCrashedError):
            encoder.encode(["EXIT"])
        with pytest.raises(EncoderBrokenError):
            encoder.encode(["EXIT"])


def _wait_until_dead(pid: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # ended, but its new parent has not read its exit code yet
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")


@pytest.mark.parametrize("busy", ["idle", "SPIN", "HOLD"])
def test_child_ends_with_its_parent(tmp_path: Path, busy: str):
    script = f"""
import pathlib, time
from lsr_prod.encoding.isolation.isolated import IsolatedEncoder
from tests.encoding.poison_encoder import poison_factory
encoder = IsolatedEncoder(poison_factory(pathlib.Path({str(tmp_path / "pid")!r})), timeout_s=60)
encoder.encode(["a"])
print("open", flush=True)
encoder.encode([{busy!r}])
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"open\n"
        time.sleep(0.5)
        child = int((tmp_path / "pid").read_text())
        os.kill(child, 0)  # it runs
        parent.kill()
    _wait_until_dead(child)


@ray.remote(num_cpus=0)
class _Actor:
    def __init__(self, pid_file: Path) -> None:
        self.encoder = IsolatedEncoder(poison_factory(pid_file), timeout_s=60)

    def encode(self, text: str) -> list[int] | str:
        try:
            return self.encoder.encode([text]).terms.tolist()
        except EncoderError as error:
            return str(error)


def test_ray_actor_survives_a_crash_of_its_child_and_ends_it_when_killed(ray_local: None, tmp_path: Path):
    actor = _Actor.remote(tmp_path / "pid")
    assert "SIGSEGV" in ray.get(actor.encode.remote("SEGFAULT"))
    assert ray.get(actor.encode.remote("fine")) == [term_of("fine")]
    child = int((tmp_path / "pid").read_text())
    os.kill(child, 0)  # it runs
    actor.encode.remote("HOLD")
    time.sleep(0.5)
    ray.kill(actor)
    _wait_until_dead(child)
