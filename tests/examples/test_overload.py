"""The example backend under overload: a search is refused before anything is done for it."""

import asyncio
import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lsr_prod.search.server import Admission

FOLDER = Path(__file__).parents[2] / "examples" / "backend"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("fastapi")
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("app")
    for name in ("app", "answers", "backend"):
        sys.modules.pop(name, None)


def get(app: Any, path: str, query: bytes = b"q=a") -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body; the client sends nothing after its headers."""
    sent: list[dict[str, Any]] = []

    async def receive() -> Any:
        raise AssertionError("the body is not read")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query}
    asyncio.run(app({**scope, "headers": [], "server": ("127.0.0.1", 80), "scheme": "http"}, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("path", ["/search", "/explain"])
def test_a_full_backend_refuses_before_validation(module: Any, path: str) -> None:
    module.app.state.backend = SimpleNamespace(admission=Admission(0, 0.5))
    status, headers, body = get(module.app, path, query=b"")  # without q: FastAPI would say 422
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert body == b'{"detail":"too many requests wait"}'
    assert b"content-security-policy" in headers


def test_a_full_backend_serves_its_page(module: Any) -> None:
    module.app.state.backend = SimpleNamespace(
        admission=Admission(0, 0.5),
        sides={"a": SimpleNamespace(publication=SimpleNamespace(number=7))},
        problem=None,
    )
    assert get(module.app, "/health")[0] == 200


def test_admitted_searches_are_counted(module: Any) -> None:
    admission = Admission(1, 0.5)
    module.app.state.backend = SimpleNamespace(admission=admission)
    assert get(module.app, "/search", query=b"")[0] == 422
    assert (admission.admitted, admission.refusal()) == (0, None)
