"""The upload of a model directory, against a local endpoint with the interface of Hugging Face."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest


class Hub(BaseHTTPRequestHandler):
    """Takes every file as a part of the commit."""

    calls: ClassVar[list[tuple[str, bytes]]] = []
    fails = False

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.calls.append((self.path, body))
        url = f"http://127.0.0.1:{self.server.server_address[1]}/me/model"
        answer: dict[str, Any] = {"url": url, "commitUrl": f"{url}/commit/abc", "commitOid": "abc"}
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            answer = {
                "files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
            }
        content = json.dumps(answer).encode()
        self.send_response(403 if self.fails else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST  # noqa: N815 - names of http.server

    def _chunk(self) -> bytes:
        data = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return data

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.calls, Hub.fails = [], False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def push(hub: str, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_token"}
    command = [sys.executable, "-m", "lsr_prod", "push", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_every_file_is_in_one_commit(hub: str, tiny_model: Path) -> None:
    done = push(hub, str(tiny_model), "me/model")
    assert (done.returncode, done.stdout) == (0, "me/model: abc\n"), done.stderr
    created = [json.loads(body) for path, body in Hub.calls if path.endswith("/repos/create")]
    assert [one["visibility"] for one in created] == ["private"]
    commits = [body for path, body in Hub.calls if "/commit/" in path]
    lines = [json.loads(line)["value"] for line in commits[0].splitlines()]
    sent = {line["path"]: base64.b64decode(line["content"]) for line in lines if "path" in line}
    files = [path for path in tiny_model.rglob("*") if path.is_file()]
    assert sent == {str(path.relative_to(tiny_model)): path.read_bytes() for path in files}


@pytest.mark.long
def test_refused_upload_is_one_line(hub: str, tiny_model: Path, tmp_path: Path) -> None:
    Hub.fails = True
    done = push(hub, str(tiny_model), "me/model")
    assert done.returncode == 1
    assert "me/model was not written" in done.stderr
    assert "Traceback" not in done.stderr
    (tmp_path / "file").write_text("no model")
    done = push(hub, str(tmp_path), "me/model")
    assert done.returncode == 2
    assert "MODEL: " in done.stderr
    done = push(hub, str(tiny_model), "not a name")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
