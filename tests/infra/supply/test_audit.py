"""``make audit`` fails on vulnerabilities, and on packages that were not audited."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.supply.audit import IGNORED, read_ignored, read_report, rounds
from infra.supply.locks import LOCKS, ROOT, locked
from tests.infra.supply.environment import PYTHON, needs_tools

ADVISORY = {"id": "PYSEC-2026-1", "aliases": ["GHSA-aaaa-bbbb-cccc"], "fix_versions": ["2.0"]}
ENTRY = '[[ignored]]\nid = "GHSA-aaaa-bbbb-cccc"\nreason = "not called"\nuntil = 2026-12-31\n'


def report(**more: object) -> dict[str, object]:
    return {"dependencies": [{"name": "six", "version": "1.17.0", "vulns": []}, {"name": "numba", **more}]}


def test_packages_without_a_known_vulnerability_pass():
    assert read_report(report(version="1.0", vulns=[]), set()).exit_code == 0


def test_vulnerable_package_fails_with_its_advisory():
    found = read_report(report(version="1.0", vulns=[ADVISORY]), {"PYSEC-2020-9"})
    assert found.exit_code == 1
    assert found.vulnerable == {"numba 1.0": ["PYSEC-2026-1 (fixed in 2.0)"]}


def test_package_that_the_service_does_not_know_fails():
    """pip-audit says "No known vulnerabilities found" and ends with 0."""
    found = read_report(report(skip_reason="Dependency not found on PyPI"), set())
    assert found.exit_code == 2
    assert found.not_audited == {"numba": "Dependency not found on PyPI"}


@pytest.mark.parametrize(("today", "code"), [(date(2026, 12, 31), 0), (date(2027, 1, 1), 1)])
def test_advisory_is_ignored_until_its_last_day(today, code):
    found = read_report(report(version="1.0", vulns=[ADVISORY]), read_ignored(ENTRY, today))
    assert found.exit_code == code
    assert found.ignored == (["PYSEC-2026-1"] if code == 0 else [])


@pytest.mark.parametrize("line", ["id", "reason", "until"])
def test_ignored_advisory_needs_all_fields(line):
    text = "\n".join(part for part in ENTRY.splitlines() if not part.startswith(line))
    with pytest.raises(ValueError, match="needs id, reason and until"):
        read_ignored(text, date(2026, 1, 1))


def test_the_file_of_ignored_advisories_is_valid():
    read_ignored(IGNORED.read_text(), datetime.now(UTC).date())


def test_two_versions_of_a_package_are_audited_in_two_rounds():
    assert rounds({("a", "1"), ("a", "2"), ("b", "1")}) == [[("a", "1"), ("b", "1")], [("a", "2")]]


def test_every_line_of_the_locks_gives_a_version():
    assert all(locked(environment) for environment in LOCKS)


@contextmanager
def advisories(vulnerable: str) -> Iterator[str]:
    """An OSV service, which knows one advisory."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = asked["package"]["name"]
            affected = [
                {
                    "package": {"name": name, "ecosystem": "PyPI"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}],
                }
            ]
            advisory = {"id": "PYSEC-2026-1", "summary": "x", "details": "x", "affected": affected}
            body = json.dumps({"vulns": [advisory]} if name == vulnerable else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1/query"
    server.shutdown()
    server.server_close()


@needs_tools
def test_audit_of_a_lock_reports_vulnerable_packages_and_an_absent_service():
    def run(url: str) -> subprocess.CompletedProcess[str]:
        command = [PYTHON, "-m", "infra.supply.audit", "--environment", "build", "--service", "osv", "--osv-url", url]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    with advisories("hatchling") as url:
        done = run(url)
        version = dict(locked("build"))["hatchling"]
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.startswith(f"hatchling {version}: PYSEC-2026-1 (fixed in 99)\n")
    done = run(url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the advisory service osv cannot be used, nothing was audited" in done.stderr
