"""Health of a replica: calls that hang."""

import threading

import pytest

from lsr_prod.serving.replica import RunningCalls


def test_a_hung_call_is_reported_until_it_returns():
    calls, started, end = RunningCalls(0.0), threading.Event(), threading.Event()
    calls.check_progress()

    def work():
        started.set()
        end.wait(10)

    thread = threading.Thread(target=calls.run, args=(work,))
    thread.start()
    assert started.wait(10)
    with pytest.raises(RuntimeError, match="a call has been running for 0 s, more than 0"):
        calls.check_progress()
    end.set()
    thread.join()
    calls.check_progress()
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 // 0)
    calls.check_progress()
