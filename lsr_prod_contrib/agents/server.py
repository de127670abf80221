"""The tools of an index over the Model Context Protocol: on stdin and stdout, or by HTTP on loopback with a token."""

import hmac
import logging
import os
import socket
from collections.abc import Mapping
from functools import partial
from threading import Thread
from typing import Any

import anyio
import uvicorn
from anyio import to_thread
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

from lsr_prod import __version__
from lsr_prod.errors import ConfigError, LsrError
from lsr_prod.logs import visible
from lsr_prod.search.searcher import Searcher
from lsr_prod_contrib.agents.tools import INSTRUCTIONS, TOOLS, call_tool, describe

TOKEN = "LSR_PROD_MCP_TOKEN"  # noqa: S105 (the name of a variable)
_SHORTEST = 16
_THREADS = 4  # searches at the same time
_MOST_REQUESTS = 64
_BODY_BYTES = 1 << 18
_HINTS = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
log = logging.getLogger(__name__)


def make_server(searcher: Searcher) -> Server[Any]:
    """Return a server of the tools."""
    limiter = anyio.CapacityLimiter(_THREADS)

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        index = describe(searcher)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=f"{tool.description} {index}",
                    input_schema=tool.schema,
                    annotations=_HINTS,
                )
                for tool in TOOLS
            ]
        )

    async def call(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        work = partial(_answer, searcher, params.name, params.arguments or {})
        text, failed = await to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    return Server(
        "lsr_prod", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call
    )


def _answer(searcher: Searcher, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the answer of a tool, or one sentence that says why there is none, and whether it failed."""
    try:
        return call_tool(searcher, name, arguments), False
    except LsrError as error:
        return visible(str(error)), True
    except Exception:
        log.exception("the tool %s failed", visible(name))
        return "the tool failed by an unexpected error; the log of the server has it", True


def serve_stdio(searcher: Searcher) -> None:
    """Serve one client until it closes stdin. Meanwhile, whatever else is written to stdout goes to stderr."""
    server = make_server(searcher)

    async def run() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(run)


class HttpServer:
    """Serves the tools at ``http://127.0.0.1:PORT/mcp`` to clients that send the token, in a thread."""

    def __init__(self, searcher: Searcher, port: int, token: str) -> None:
        """Listen on a port of loopback; 0: a free one."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(_MOST_REQUESTS)
        except OSError as error:
            self._socket.close()
            raise ConfigError("--http", f"127.0.0.1:{port}: {error.strerror}", "give a free port") from error
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"
        app = make_server(searcher).streamable_http_app(
            json_response=True, stateless_http=True, max_request_body_size=_BODY_BYTES
        )
        config = uvicorn.Config(
            partial(_guarded, app, token),
            interface="asgi3",
            limit_concurrency=_MOST_REQUESTS,
            timeout_graceful_shutdown=5,
            log_config=None,
            access_log=False,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="lsr-mcp", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False after the server has ended."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the server; requests that run have five seconds."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def read_token() -> str:
    """Return the token of the environment."""
    token = os.environ.get(TOKEN, "")
    if len(token) < _SHORTEST:
        state = f"has {len(token)} characters" if token else "is not set"
        raise ConfigError(TOKEN, f"it {state}", f"set it to a secret of {_SHORTEST} characters or more")
    return token


async def _guarded(app: Any, token: str, scope: Any, receive: Any, send: Any) -> None:
    """Pass a request on if it has the token."""
    if scope["type"] == "http":
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, f"Bearer {token}".encode()):
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
    await app(scope, receive, send)
