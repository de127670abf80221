"""Records of the library have their facts in the message and as fields."""

import logging

import pytest

from lsr_prod.logs import get_log


def test_facts_are_in_the_message_and_in_fields(caplog: pytest.LogCaptureFixture) -> None:
    log = get_log("lsr_prod.somewhere")
    with caplog.at_level(logging.INFO, "lsr_prod"):
        log.info("shard built", extra={"fields": {"shard": "abc", "documents": 10, "note": "a\nb" + "x" * 300}})
        log.info("done")
        log.debug("not said", extra={"fields": {"documents": 10}})
    first, second = caplog.records
    assert first.getMessage() == "shard built: shard=abc, documents=10, note=a b" + "x" * 197 + "…"
    assert (vars(first)["event"], vars(first)["fields"]["documents"]) == ("shard built", 10)
    assert (first.module, first.name) == ("test_logs", "lsr_prod.somewhere")
    assert (second.getMessage(), vars(second)["event"]) == ("done", "done")
