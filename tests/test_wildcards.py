"""No default listens on all interfaces, except in pods, whose ports a NetworkPolicy closes."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("lsr_prod", "lsr_prod_contrib", "jobs", "quickstart", "infra", "benchmarks")
SUFFIXES = {".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".service", ".conf", ".env", ".md"}
_WILDCARD = re.compile(r"\b0\.0\.0\.0(?!/)|\[::\](?!\w)|[\"']::[\"']|host[\"']?[:=]\s*[\"']?(\*|::)")
_IN_PODS = re.compile(r"^\s*(dashboard-host|http_host|host): 0\.0\.0\.0$")


def wildcards(text: str) -> list[str]:
    """Return the lines that name an address of all interfaces."""
    return [line for line in text.splitlines() if _WILDCARD.search(line)]


def test_wildcards_are_recognized():
    for line in ("host: 0.0.0.0", 'bind("::", 80)', "listen [::]:80", "--host=* ", "--dashboard-host=0.0.0.0"):
        assert wildcards(line), line
    for line in ("cidr: 0.0.0.0/0", "rows[::2]", "tables[::]x", "127.0.0.1", "10.0.0.0.1"):
        assert not wildcards(line), line


def test_only_pods_listen_on_all_interfaces():
    found = {}
    places = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    for path in [*places, ROOT / "Dockerfile", ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        name = str(path.relative_to(ROOT))
        if name == "docs/log.md":
            continue
        lines = wildcards(path.read_text(encoding="utf-8"))
        if name.startswith("infra/kubernetes/"):
            lines = [line for line in lines if not _IN_PODS.match(line)]
        if lines:
            found[name] = lines
    assert found == {}
