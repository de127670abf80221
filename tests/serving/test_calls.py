"""Calls that are sent again, and those that are not."""

import asyncio
import time

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, OwnerDiedError, RayTaskError
from ray.serve.exceptions import ReplicaUnavailableError

from lsr_prod.errors import LsrError, QueryError
from lsr_prod.serving.groups import LOST, UnavailableError, own_error, pause, send


def ask(outcomes, *, attempts=4, timeout_s=5.0):
    sent = iter(outcomes)

    async def call():
        outcome = next(sent)
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
        return outcome

    return asyncio.run(send(call, attempts=attempts, timeout_s=timeout_s, what={"group": 0}))


def test_a_call_is_sent_again_until_a_replica_answers():
    lost = [ActorDiedError(), ActorUnavailableError("away", None), ReplicaUnavailableError("replica")]
    assert all(isinstance(error, LOST) for error in lost)
    assert issubclass(OwnerDiedError, LOST)
    assert ask([*lost, "answer"]) == "answer"


def test_a_call_fails_after_the_last_attempt():
    with pytest.raises(UnavailableError, match="4 replicas were lost"):
        ask([ActorDiedError()] * 4 + ["too late"])


def test_the_timeout_covers_all_attempts():
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        ask([ActorDiedError(), 5.0], timeout_s=0.1)
    assert time.monotonic() - start < 2


def test_a_refused_call_is_not_sent_again():
    with pytest.raises(QueryError, match=r"^k is odd$"):
        ask([RayTaskError("match", "traceback", QueryError("k is odd")), "never"])
    broken = RayTaskError("match", "traceback", ZeroDivisionError())
    assert own_error(broken) is broken
    assert issubclass(UnavailableError, LsrError)


def test_pauses_double_up_to_one_second():
    assert [pause(attempt) for attempt in (0, 1, 2, 30)] == [0.02, 0.04, 0.08, 1.0]
