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

from lsr_prod.encoding.batches import encode_batches
from lsr_prod.encoding.encoder import EncoderFactory
from lsr_prod.encoding.isolation.isolated import ISOLATED_BATCH_SIZE, IsolatedEncoder
from lsr_prod.errors import (
    EncoderBrokenError,
    EncoderCrashedError,
    EncoderError,
    EncoderRaisedError,
    EncoderTimeoutError,
)
from lsr_prod.inference import BundleEncoder
from tests.encoding import poison_encoder
from tests.encoding.poison_encoder import poison_factory, term_of

SETTINGS = {"kind": "document", "top_k": 8, "batch_tokens": 64}
SHORT_S = 4.0  # a busy machine answers a word in less


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt: a process of a parallel run of tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_vectors_are_those_of_this_process(tiny_bundle: Path):
    texts = ["a quick fox", "", "\0 null", "naïve 日本 \U0001f98a", "word " * 5000] * 20
    expected = BundleEncoder(tiny_bundle).encode(texts, **SETTINGS)
    with IsolatedEncoder(EncoderFactory.of_bundle(tiny_bundle, threads=1), timeout_s=60) as encoder:
        for _ in range(2):
            found = encoder.encode(texts, **SETTINGS)
            for name in ("offsets", "terms", "weights"):
                assert np.array_equal(getattr(found, name), getattr(expected, name))
        assert len(encoder.encode([], **SETTINGS)) == 0
        assert encoder.starts == 1


def test_a_child_is_started_when_it_is_needed_and_again_after_a_crash():
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        assert encoder.starts == 0
        for word, cause in {
            "SEGFAULT": "SIGSEGV",
            "ABORT": "SIGABRT",
            "EXIT": "exit code 3",
            "KILL": "SIGKILL",
        }.items():
            with pytest.raises(EncoderCrashedError, match=cause):
                encoder.encode(["one", word], **SETTINGS)
            assert encoder.encode(["after"], **SETTINGS).terms.tolist() == [term_of("after")]
        assert encoder.starts == 5


@pytest.mark.parametrize("word", ["SPIN", "HOLD"])
def test_a_child_that_does_not_answer_is_ended_and_replaced(word: str):
    with IsolatedEncoder(poison_factory(), timeout_s=SHORT_S) as encoder:
        started = time.monotonic()
        with pytest.raises(EncoderTimeoutError, match="within 4 s"):
            encoder.encode([word], **SETTINGS)
        assert time.monotonic() - started >= SHORT_S
        assert encoder.encode(["after"], **SETTINGS).terms.tolist() == [term_of("after")]
        assert encoder.starts == 2


def test_an_exception_of_the_encoder_costs_no_process():
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        for _ in range(30):
            with pytest.raises(EncoderRaisedError, match=r"^RuntimeError: the graph failed$"):
                encoder.encode(["RAISE"], **SETTINGS)
        assert encoder.starts == 1


def test_what_the_model_prints_is_not_taken_for_an_answer():
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        for text in ("PRINT a", "b"):
            assert encoder.encode([text], **SETTINGS).terms.tolist() == [term_of(text)]
        assert encoder.starts == 1


def test_a_single_text_is_given_up_only_after_a_second_crash(tmp_path: Path):
    factory = EncoderFactory(f"{poison_encoder.__name__}:open_first_time", {"memory": str(tmp_path / "met")})
    with IsolatedEncoder(factory, timeout_s=60) as encoder:
        assert encoder.encode(["ONCE"], **SETTINGS).terms.tolist() == [term_of("ONCE")]
        assert encoder.starts == 2


def test_a_child_that_ended_between_two_calls_is_replaced(tmp_path: Path):
    with IsolatedEncoder(poison_factory(tmp_path / "pid"), timeout_s=60) as encoder:
        encoder.encode(["a"], **SETTINGS)
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its last thread is gone
        assert len(encoder.encode(["a", "b"], **SETTINGS)) == 2
        assert encoder.starts == 2


def test_a_request_that_was_given_up_is_not_answered_to_the_next_one(interruptible: None):
    with IsolatedEncoder(poison_factory(), timeout_s=60) as encoder:
        encoder.encode(["warm"], **SETTINGS)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(["SLEEP"], **SETTINGS)
        timer.join()
        assert encoder.encode(["next"], **SETTINGS).terms.tolist() == [term_of("next")]
        assert encoder.starts == 2


@pytest.mark.parametrize("how", ["SEGFAULT", "RAISE", "SLEEP"])
def test_a_model_that_does_not_open_is_broken_at_once(how: str):
    factory = EncoderFactory(f"{poison_encoder.__name__}:open_broken", {"how": how})
    with IsolatedEncoder(factory, timeout_s=60, start_timeout_s=3) as encoder:
        for attempt in (1, 2):
            with pytest.raises(EncoderBrokenError, match="cannot be opened"):
                encode_batches(encoder, ["a", "b"], top_k=8, batch_tokens=64)
            assert encoder.starts == attempt


def test_a_model_that_ends_on_every_text_is_broken_after_a_bounded_number_of_starts():
    texts = [f"SEGFAULT {i}" for i in range(1000)]
    with IsolatedEncoder(poison_factory(), timeout_s=60, most_in_a_row=3) as encoder:
        with pytest.raises(EncoderBrokenError, match=r"3 documents in a row .* SIGSEGV"):
            encode_batches(encoder, texts, top_k=8, batch_tokens=64, chunk=ISOLATED_BATCH_SIZE)
        assert encoder.starts <= 2 * 3 + 6


def test_successes_between_them_keep_the_model_from_being_called_broken():
    with IsolatedEncoder(poison_factory(), timeout_s=60, most_in_a_row=2) as encoder:
        for i in range(3):
            with pytest.raises(EncoderCrashedError):
                encoder.encode([f"EXIT {i}"], **SETTINGS)
            encoder.encode(["good"], **SETTINGS)
        with pytest.raises(EncoderCrashedError):
            encoder.encode(["EXIT"], **SETTINGS)
        with pytest.raises(EncoderBrokenError):
            encoder.encode(["EXIT"], **SETTINGS)


def _wait_until_dead(pid: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # ended; whoever adopted it has not looked yet
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} lives")


@pytest.mark.parametrize("busy", ["idle", "SPIN", "HOLD"])
def test_the_child_dies_with_its_parent(tmp_path: Path, busy: str):
    script = f"""
import pathlib, time
from lsr_prod.encoding.isolation.isolated import IsolatedEncoder
from tests.encoding.poison_encoder import poison_factory
encoder = IsolatedEncoder(poison_factory(pathlib.Path({str(tmp_path / "pid")!r})), timeout_s=60)
encoder.encode(["a"], kind="document", top_k=1, batch_tokens=1)
print("open", flush=True)
encoder.encode([{busy!r}], kind="document", top_k=1, batch_tokens=1)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"open\n"
        time.sleep(0.5)
        child = int((tmp_path / "pid").read_text())
        os.kill(child, 0)  # it lives
        parent.kill()
    _wait_until_dead(child)


@ray.remote(num_cpus=0)
class _Actor:
    def __init__(self, pid_file: Path) -> None:
        self.encoder = IsolatedEncoder(poison_factory(pid_file), timeout_s=60)

    def encode(self, text: str) -> list[int] | str:
        try:
            return self.encoder.encode([text], **SETTINGS).terms.tolist()
        except EncoderError as error:
            return str(error)


def test_a_ray_actor_survives_its_childs_crash_and_takes_the_child_along_when_it_is_killed(
    ray_local: None, tmp_path: Path
):
    actor = _Actor.remote(tmp_path / "pid")
    assert "SIGSEGV" in ray.get(actor.encode.remote("SEGFAULT"))
    assert ray.get(actor.encode.remote("fine")) == [term_of("fine")]
    child = int((tmp_path / "pid").read_text())
    os.kill(child, 0)  # it lives
    actor.encode.remote("HOLD")
    time.sleep(0.5)
    ray.kill(actor)
    _wait_until_dead(child)
