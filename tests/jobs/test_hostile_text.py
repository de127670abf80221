"""Text of documents, files and settings that would act on a terminal arrives there escaped."""

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lsr_prod.corpus.source_rows import row_schema
from lsr_prod.encoding.tables.quarantine_rows import write_quarantine
from lsr_prod.storage import Store
from lsr_prod.storage.publications import pin_publication
from tests.encoding.made_tables import make_tables
from tests.indexing.corpus import encode_corpus, make_index
from tests.test_visible import FORBIDDEN

# Window title, clear screen, clipboard, C1 (CSI), bidi, separators, a tab, and line breaks that would break a table.
EVIL = "\x1b]0;title\x07\x1b[2J\x1b]52;c;YQ==\x1b\\\x9b31m\x90q\x9c\u202eevil\u2066\u200f\u061c\u2028\u2029\u200b"
EVIL += "\t\r\n\x7f\x08"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
RUN = "import json, sys; from lsr_prod.jobs.command import main; [main(argv) for argv in json.loads(sys.argv[1])]"


def on_terminal(commands: list[list[str]], lines: str = "") -> str:
    """Return what commands print on a terminal, without the styles and line ends of this program."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(commands)], stdin=subprocess.PIPE, stdout=writer, stderr=writer,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(writer)
    assert process.stdin is not None
    process.stdin.write(lines.encode())
    process.stdin.close()
    printed = bytearray()
    while True:
        try:
            some = os.read(reader, 1 << 16)
        except OSError:  # the end of a terminal that nobody writes to
            break
        if not some:
            break
        printed += some
    os.close(reader)
    assert process.wait(60) == 0, printed.decode()
    return STYLE.sub("", printed.decode().replace("\r\n", "\n"))


def check(printed: str) -> None:
    """Require that nothing acts on the terminal."""
    assert not set(printed.replace("\n", "")) & set(FORBIDDEN), ascii(printed)
    assert "Traceback" not in printed


@pytest.fixture(scope="module")
def index(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "index\x1b[2J\u202e"
    texts = {f"lock {EVIL}": f"A lock is held {EVIL} by a thread.", "event": "Threads wait for an event."}
    corpus = {doc_id: replace(doc, stored={"title": f"title {EVIL}"}) for doc_id, doc in
              encode_corpus(tiny_bundle, texts).items()}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSR_PROD_BY", f"by {EVIL}")
        make_index(folder, {"event": corpus["event"]}, bundle=tiny_bundle, bm25=True)
        make_index(folder, corpus, bundle=tiny_bundle, bm25=True)
    pin_publication(Store(str(folder)), 1, by=f"by {EVIL}", reason=f"reason {EVIL}")
    return folder


@pytest.mark.long
def test_search_prints_hits_of_hostile_documents_escaped(index: Path) -> None:
    lines = f"who holds the lock\n:words 1\nlock {EVIL.replace(chr(10), '').replace(chr(13), '')}\n:k \x1b[2J\n:quit\n"
    printed = on_terminal([["search", str(index)]], lines)
    check(printed)
    assert "\\x1b]52;c;" in printed
    # The lines of a hit: its id and score, its parts, and its text.
    first = next(line for line in printed.splitlines() if line.startswith("  1. "))
    assert "lock \\x1b]0;title\\x07" in first
    assert first.endswith("terms)")


@pytest.mark.long
def test_tables_and_errors_print_hostile_text_escaped(index: Path, tmp_path: Path) -> None:
    _, quarantine = make_tables(tmp_path)
    row = {"cell": 0, "file": 0, "source": f"b{EVIL}.jsonl", "source_key": 0, "position": 7, "reason": f"x{EVIL}",
           "detail": f"bad {EVIL}", "doc_id": EVIL, "raw": f"raw {EVIL}"}  # fmt: skip
    write_quarantine(quarantine, "p", 1, pa.Table.from_pylist([row], schema=row_schema(())))
    config = tmp_path / "d.yaml"
    config.write_text(json.dumps({"source": {"paths": [EVIL], f"key{EVIL}": 1}}))
    place = str(index)
    plain = EVIL.replace("\0", "")
    commands = [
        ["table", "quarantine", quarantine.uri, "--raw"],
        ["table", "quarantine", quarantine.uri, "--raw", "--json"],
        ["table", "status", str(tmp_path / "table")],
        ["index", "publications", place],
        ["index", "publications", place, "--json"],
        ["index", "catalog", place],
        ["index", "pin", place, "--reason", plain],
        ["index", "diff", place, "--documents"],
        ["index", "unpin", place],
        ["search", f"/nowhere{plain}"],
        ["search", place, "-k", plain],
        ["search", place, f"--{plain}"],
        ["encode", "--config", str(config)],
        ["encode", "--config", plain],
        ["encode", f"--encode.table{plain}", "x"],
        ["evaluate", "--evaluate.k", plain],
        ["doctor", f"--nodes={plain}"],
        ["inspect", plain],
        ["inspect", "query", place, plain, "--output", str(tmp_path / "page.html")],
        ["index", "canary", place, plain],
        ["index", "takedown", "--file", plain],
        ["inspect", "lineage", plain],
        [f"encod{plain}"],
        [plain],
    ]
    printed = on_terminal(commands)
    check(printed)
    for part in ("quarantined rows", "publications of ", "\\x1b]0;title", "\\u202e"):
        assert part in printed
    tables = [line for line in printed.splitlines() if line.startswith("│")]
    assert len(tables) > 10
    assert all(line.endswith("│") for line in tables)
    objects = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert any(found.get("doc_id") == EVIL for found in objects)
    assert "lsr_prod does not expect" not in printed


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_terminal_of_any_encoding_gets_every_line(encoding: str, index: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    commands = json.dumps([["index", "publications", str(index)], ["search", "/tmp/日本語"]])
    done = subprocess.run([sys.executable, "-c", RUN, commands], env=environment, capture_output=True, check=True)
    assert b"does not expect" not in done.stderr
    assert (b"\\u65e5" in done.stderr) == (encoding != "utf-8")
