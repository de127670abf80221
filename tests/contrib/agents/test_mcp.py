"""Agents use an index by the client of the official SDK: tools, bounds, refusals, and both transports."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest
from jsonschema import Draft202012Validator

from lsr_prod.jobs.serving import mcp
from lsr_prod_contrib.agents.tools import MAX_BYTES, MAX_FIELD, MAX_HITS, TOOLS
from tests.lazy import LazyModule

mcp_sdk, mcp_http = LazyModule("mcp"), LazyModule("mcp.client.streamable_http")
agents = LazyModule("lsr_prod_contrib.agents.server")

SECRET = "a-token-of-a-test"
HIDDEN = "\U000e0041\u202e\x1b"


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    from lsr_prod import Index

    texts = {
        "lock": "hold a lock",
        "date": f"parse a date{HIDDEN}",
        **{f"long{i}": "lock 日本語 " * 2_200 for i in range(60)},
    }
    with Index.from_texts(texts, fields={"year": [2019, 2021, *[2000] * 60]}, bm25=True) as index:
        yield index


@pytest.fixture(scope="module")
def folder(searcher):
    return str(searcher.snapshot.index)


async def ask(client, name, **arguments):
    answer = await client.call_tool(name, arguments)
    text = answer.content[0].text
    assert len(text.encode()) <= MAX_BYTES
    return text if answer.is_error else json.loads(text)


def with_client(server, work, **options):
    async def run():
        async with mcp_sdk.Client(server, **options) as client:
            return await work(client)

    return asyncio.run(run())


def call(searcher, name, **arguments):
    return with_client(agents.make_server(searcher), lambda client: ask(client, name, **arguments))


async def use_every_tool(client):
    tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == [tool.name for tool in TOOLS]
    for tool in tools:
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.annotations.read_only_hint
        assert "year (int64)" in tool.description
    recent = {"field": "year", "op": "ge", "value": 2020}
    found = await ask(client, "search", text="lock date", filter=recent, fields=["text", "year"], facets=["year"])
    assert [hit["doc_id"] for hit in found["hits"]] == ["date"]
    assert found["hits"][0]["fields"]["year"] == 2021
    assert found["facets"] == {"year": [[2021, 1]]}
    weighted = await ask(client, "search_terms", terms=dict(found["terms"]), k=1, filter=recent)
    assert weighted["hits"][0]["score"] == pytest.approx(found["hits"][0]["score"], rel=1e-3)
    document = await ask(client, "read_document", doc_id="lock")
    assert document["fields"] == {"text": "hold a lock", "year": 2019}
    reasons = await ask(client, "explain", doc_id="date", text="parse lock")
    assert [part["term"] for part in reasons["contributions"]] == ["parse"]
    assert reasons["missing"] == ["lock"]
    counts = await ask(client, "term_statistics", terms=["lock", "parse", "unheard"])
    assert [row["documents"] for row in counts["terms"]] == [61, 1, 0]
    assert (await ask(client, "term_statistics", terms=["LOCKS"], words=True))["terms"][0]["documents"] == 61


@pytest.mark.long
def test_client_uses_every_tool_in_both_generations_of_the_protocol(searcher):
    for mode in ("auto", "legacy"):
        with_client(agents.make_server(searcher), use_every_tool, mode=mode)


@pytest.mark.long
def test_client_uses_every_tool_over_stdio_of_a_process(folder):
    server = mcp_sdk.StdioServerParameters(
        command=sys.executable, args=["-m", "lsr_prod", "mcp", folder], env=dict(os.environ)
    )
    with_client(server, use_every_tool, read_timeout_seconds=60)


@pytest.mark.long
def test_only_the_protocol_goes_to_stdout(folder):
    lines = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"text": "lock"}},
        },
    ]
    program = "import sys; from lsr_prod.jobs.command import main; from lsr_prod_contrib.agents import tools\n"
    program += "tools.describe = tools._checked_text = lambda text: print('noise') or text\n"
    program += "raise SystemExit(main(sys.argv[1:]))"
    sent = "".join(json.dumps(line) + "\n" for line in lines) + "no JSON\n"
    with subprocess.Popen(
        [sys.executable, "-c", program, "mcp", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write(sent)
        process.stdin.flush()
        received = [json.loads(process.stdout.readline()) for _ in range(2)]
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [answer.get("id") for answer in received] == [1, 2]
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert "noise" in errors


@contextmanager
def http_server(folder):
    with subprocess.Popen(
        [sys.executable, "-m", "lsr_prod", "mcp", folder, "--http", "0"],
        env={**os.environ, agents.TOKEN: SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process.stdout.readline().split(" at ")[1].split(",")[0]
        finally:
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, "")
        assert SECRET not in errors


@pytest.mark.long
def test_client_uses_every_tool_over_http_with_the_token_only(folder):
    async def use(url):
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {SECRET}"}) as http:
            async with mcp_sdk.Client(mcp_http.streamable_http_client(url, http_client=http)) as client:
                await use_every_tool(client)
            foreign = await http.post(url, json={}, headers={"Origin": "http://example.org"})
            assert foreign.status_code == 403
            assert (await http.post(url, content=b"x" * (1 << 19))).status_code == 413
        for headers in ({}, {"Authorization": "Bearer another"}, {"Authorization": SECRET}):
            async with httpx2.AsyncClient(headers=headers) as http:
                assert (await http.post(url, json={})).status_code == 401

    with http_server(folder) as url:
        asyncio.run(use(url))


def test_answers_are_bounded(searcher):
    found = call(searcher, "search", text="lock", k=MAX_HITS, fields=["text"])
    assert len(found["hits"]) < MAX_HITS
    assert len(found["hits"]) + found["left_out"] == MAX_HITS
    assert all(len(hit["fields"]["text"]) <= MAX_FIELD + 1 for hit in found["hits"])
    page = call(searcher, "read_document", doc_id="long0", fields=["text"])
    rest = call(searcher, "read_document", doc_id="long0", fields=["text"], start=len(page["fields"]["text"]))
    assert page["characters_of_longer_fields"] == {"text": 19_800}
    assert rest["characters_of_longer_fields"] == {}
    assert page["fields"]["text"] + rest["fields"]["text"] == searcher.get(["long0"])[0]["text"]


@pytest.fixture(scope="module")
def wide():
    from lsr_prod import Index

    values = {
        "texts": ["x" * 40_000, 'say "日本" ' * 4_000],
        "many": [str(number) for number in range(30_000)],
        "few": ["a", "b" * 990, "c" * 20, "d"],
        "hidden": ["\u200b" * 1_000] * 9,
    }
    fields = {name: [value] for name, value in values.items()} | {"zero": ["\u200b" * 20_000], "year": [2020]}
    with Index.from_texts({"wide": "hold a lock"}, fields=fields) as index:
        yield index


def test_long_lists_are_cut_in_hits(wide):
    (hit,) = call(wide, "search", text="lock", fields=["texts", "many", "few", "hidden", "zero", "year"])["hits"]
    fields = hit["fields"]
    assert fields["texts"] == ["x" * MAX_FIELD + "…", "…"]
    assert fields["many"][:3] == ["0", "1", "2"]
    assert fields["many"][-1] == "…"
    assert sum(map(len, fields["many"])) < MAX_FIELD
    assert (fields["few"][:2], fields["few"][2:]) == (["a", "b" * 990], ["c…", "…"])
    assert fields["zero"].startswith("\\u200b" * 166)
    assert all(len(text) <= MAX_FIELD + 1 for text in (fields["zero"], *fields["hidden"]))
    assert fields["year"] == 2020


@pytest.mark.parametrize("field", ["texts", "many", "hidden", "zero"])
def test_long_field_is_read_in_pages(wide, field):
    text, pages, more = "", 0, True
    while more:
        page = call(wide, "read_document", doc_id="wide", fields=[field], start=len(text))
        text, pages, more = text + page["fields"][field], pages + 1, page["characters_of_longer_fields"]
        assert more in ({}, {field: more.get(field)})
    value = wide.get(["wide"])[0][field]
    if isinstance(value, str):
        assert text == value.replace("\u200b", "\\u200b")
    else:
        assert json.loads(text) == [item.replace("\u200b", "\\u200b") for item in value]
    assert pages > 1


def test_short_list_is_read_as_a_list(wide):
    page = call(wide, "read_document", doc_id="wide", fields=["few", "year"])
    assert page["fields"] == {"few": ["a", "b" * 990, "c" * 20, "d"], "year": 2020}
    assert page["characters_of_longer_fields"] == {}


def test_hidden_characters_of_documents_are_shown(searcher):
    text = call(searcher, "read_document", doc_id="date")["fields"]["text"]
    assert text == "parse a date\\U000e0041\\u202e\\x1b"


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("search", {}, "no text; give it"),
        ("search", {"text": 3}, "not a string"),
        ("search", {"text": "x" * 9_000}, "9000 characters; give at most 8000"),
        ("search", {"text": "a", "k": 51}, "k=51 is not possible; give an integer from 0 to 50"),
        ("search", {"text": "a", "k": "5"}, "k='5' is not possible"),
        ("search", {"text": "a", "rescore": 10_000}, "'rescore', which is unknown"),
        ("search", {"text": "a", "filter": {"field": "size", "op": "eq", "value": 1}}, "no attribute 'size'"),
        ("search", {"text": "a", "fields": ["secret"]}, "does not store the field 'secret'"),
        ("search_terms", {"terms": {"a": -1}}, "give"),
        ("search_terms", {"terms": {str(i): 1 for i in range(300)}}, "300 terms are too many"),
        ("search_terms", {"terms": {"a": 1}, "text": "b"}, "give both"),
        ("read_document", {"doc_id": "none"}, "no document 'none'"),
        ("read_document", {"doc_id": "lock", "start": -1}, "start=-1"),
        ("explain", {"doc_id": "lock"}, "give the text or the terms"),
        ("explain", {"doc_id": "lock", "text": 5}, "text=5 is not a string"),
        ("explain", {"doc_id": "lock", "text": 5, "terms": {"lock": 1}}, "text=5 is not a string"),
        ("term_statistics", {"terms": ["two words"], "words": True}, "give one word at a time"),
        ("term_statistics", {"terms": ["a"] * 300}, "300 terms are too many"),
        ("delete_document", {"doc_id": "lock"}, "use one of: search, search_terms"),
    ],
)
def test_mistake_of_an_agent_is_answered_with_one_sentence(searcher, name, arguments, problem):
    answer = call(searcher, name, **arguments)
    assert isinstance(answer, str)
    assert problem in answer
    assert "\n" not in answer


def test_unexpected_error_keeps_its_text_in_the_log(searcher, monkeypatch, caplog):
    def fail(*_, **__):
        raise RuntimeError("a path of the server")

    monkeypatch.setattr(type(searcher), "search", fail)
    assert "unexpected error" in call(searcher, "search", text="a")
    assert "a path of the server" in caplog.text


def test_command_refuses_what_it_cannot_serve(folder, monkeypatch, capsys):
    def refuse(*arguments):
        assert mcp.run([*arguments]) == 2
        return capsys.readouterr().err

    monkeypatch.delenv(agents.TOKEN, raising=False)
    assert "is not set" in refuse(folder, "--http", "0")
    monkeypatch.setenv(agents.TOKEN, "short")
    assert "has 5 characters" in refuse(folder, "--http", "0")
    assert "give either INDEX or --config" in refuse()
    assert "no port" in refuse(folder, "--http", "70000")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv(agents.TOKEN, SECRET)
        assert "give a free port" in refuse(folder, "--http", str(taken.getsockname()[1]))
