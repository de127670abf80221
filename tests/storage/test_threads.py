import time

import pytest

from lsr_prod.storage.remote import in_threads


def test_results_are_in_the_order_of_the_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.storage.remote._HELD", 7)
    assert in_threads(str, range(50)) == [str(number) for number in range(50)]
    assert in_threads(str, []) == []


def test_no_call_is_started_after_an_error() -> None:
    begun = []

    def work(number: int) -> None:
        begun.append(number)
        time.sleep(0.001)
        if len(begun) == 3:
            raise ValueError("third")

    with pytest.raises(ValueError, match="third"):
        in_threads(work, range(1000), 1)
    assert len(begun) < 1000


def test_first_error_ends_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsr_prod.storage.remote._HELD", 4)
    made = []

    def fail(number: int) -> None:
        made.append(number)
        if number == 5:
            raise ValueError(number)

    with pytest.raises(ValueError, match="5"):
        in_threads(fail, range(100))
    assert max(made) < 8
