import subprocess
import sys
import threading
import time

import pytest
import ray
from ray.exceptions import RayActorError

from lsr_prod.encoding.isolation.watchdog import EXIT_CODE, Watchdog, WatchedEncoder
from tests.encoding.poison_encoder import poison_factory, term_of

SETTINGS = {"kind": "document", "top_k": 8, "batch_tokens": 64}


def run_watched(text: str, *, timeout_s: float, rest: str = "") -> subprocess.CompletedProcess[str]:
    script = f"""
import logging, time
from lsr_prod.encoding.isolation import watchdog
from tests.encoding.poison_encoder import poison_factory
logging.basicConfig()
watchdog._GRACE_S = 0.5
encoder = watchdog.WatchedEncoder(poison_factory().open(), {timeout_s})
encoder.encode([{text!r}], kind="document", top_k=8, batch_tokens=64)
{rest}
print("survived")
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("word", ["SPIN", "SLEEP"])
def test_a_call_that_takes_too_long_ends_the_process_with_a_line_and_where_it_stood(word: str):
    started = time.monotonic()
    ended = run_watched(word, timeout_s=0.5)
    assert (ended.returncode, ended.stdout) == (EXIT_CODE, "")
    assert time.monotonic() - started < 30
    assert "model call timed out" in ended.stderr
    assert "poison_encoder.py" in ended.stderr


def test_a_call_that_holds_the_interpreters_lock_is_ended_too():
    ended = run_watched("HOLD", timeout_s=0.5)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Timeout" in ended.stderr
    assert "poison_encoder.py" in ended.stderr


def test_only_the_call_is_guarded():
    ended = run_watched("fine", timeout_s=2, rest="time.sleep(3)")
    assert (ended.returncode, ended.stdout) == (0, "survived\n")


def test_an_exception_ends_the_guard():
    ended = run_watched(
        "fine",
        timeout_s=2,
        rest="""
for _ in range(3):
    try:
        encoder.encode(["RAISE"], kind="document", top_k=8, batch_tokens=64)
    except RuntimeError:
        pass
time.sleep(3)
""",
    )
    assert (ended.returncode, ended.stdout) == (0, "survived\n")


def test_guarded_calls_give_what_the_encoder_gives_and_leave_no_thread():
    threads = threading.active_count()
    encoder = WatchedEncoder(poison_factory().open(), timeout_s=600)
    for text in ("a", "b"):
        assert encoder.encode([text], **SETTINGS).terms.tolist() == [term_of(text)]
    with Watchdog(600).guard():
        assert threading.active_count() == threads + 1
    deadline = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == threads


@ray.remote(num_cpus=0, max_restarts=1)
class _Actor:
    def __init__(self) -> None:
        self.encoder = WatchedEncoder(poison_factory().open(), timeout_s=4)

    def encode(self, text: str) -> list[int]:
        return self.encoder.encode([text], **SETTINGS).terms.tolist()


@pytest.mark.parametrize("word", ["SPIN", "HOLD"])
def test_the_driver_sees_a_hung_actor_die_and_the_next_one_work(ray_local: None, word: str):
    actor = _Actor.remote()
    with pytest.raises(RayActorError):
        ray.get(actor.encode.remote(word), timeout=60)
    assert ray.get(actor.encode.options(max_task_retries=-1).remote("fine"), timeout=60) == [term_of("fine")]
    ray.kill(actor)
