import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from lsr_prod.encoding.isolation.isolated import EXIT_CODE, WatchedEncoder
from tests.encoding.poison_encoder import poison_factory, term_of


def run_watched(text: str, *, timeout_s: float, rest: str = "") -> subprocess.CompletedProcess[str]:
    script = f"""
import logging, time
from lsr_prod.encoding.isolation import isolated
from tests.encoding.poison_encoder import poison_factory
logging.basicConfig()
isolated._GRACE_S = 0.5
encoder = isolated.WatchedEncoder(poison_factory().open(), {timeout_s})
encoder.encode([{text!r}])
{rest}
print("survived")
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("word", ["SPIN", "SLEEP"])
def test_slow_call_ends_the_process_with_a_log_line_and_a_stack_trace(word: str):
    started = time.monotonic()
    ended = run_watched(word, timeout_s=0.5)
    assert (ended.returncode, ended.stdout) == (EXIT_CODE, "")
    assert time.monotonic() - started < 30
    assert "model call timed out" in ended.stderr
    assert "poison_encoder.py" in ended.stderr


def test_slow_call_that_holds_the_interpreter_lock_is_ended():
    ended = run_watched("HOLD", timeout_s=0.5)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Timeout" in ended.stderr
    assert "poison_encoder.py" in ended.stderr


def test_process_continues_after_a_call_in_time():
    ended = run_watched("fine", timeout_s=2, rest="time.sleep(3)")
    assert (ended.returncode, ended.stdout) == (0, "survived\n")


def test_exception_of_the_encoder_cancels_the_timer():
    ended = run_watched(
        "fine",
        timeout_s=2,
        rest="""
for _ in range(3):
    try:
        encoder.encode(["RAISE"])
    except RuntimeError:
        pass
time.sleep(3)
""",
    )
    assert (ended.returncode, ended.stdout) == (0, "survived\n")


def test_guarded_calls_return_the_same_vectors_and_leave_no_timer():
    # Only timers: threads of libraries that earlier tests used start and end at any time.
    before = set(threading.enumerate())

    def timers() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if isinstance(each, threading.Timer) and each not in before]

    class Observed:
        def encode(self, _texts: Sequence[str]) -> Any:
            return [any(timer.is_alive() for timer in timers())]

    encoder = WatchedEncoder(poison_factory().open(), timeout_s=600)
    for text in ("a", "b"):
        assert encoder.encode([text]).terms.tolist() == [term_of(text)]
    assert WatchedEncoder(Observed(), timeout_s=600).encode([]) == [True]
    deadline = time.monotonic() + 10
    while timers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert timers() == []


@ray.remote(num_cpus=0, max_restarts=1)
class _Actor:
    def __init__(self) -> None:
        self.encoder = WatchedEncoder(poison_factory().open(), timeout_s=2)

    def encode(self, text: str) -> list[int]:
        return self.encoder.encode([text]).terms.tolist()


@pytest.mark.long
@pytest.mark.parametrize("word", ["SPIN", "HOLD"])
def test_driver_sees_a_hung_actor_end_and_its_restart_work(ray_local: None, word: str):
    actor = _Actor.remote()
    with pytest.raises(RayActorError):
        ray.get(actor.encode.remote(word), timeout=60)
    assert ray.get(actor.encode.options(max_task_retries=-1).remote("fine"), timeout=60) == [term_of("fine")]
    ray.kill(actor)
