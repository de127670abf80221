"""Pages of the repository on the site, and the links between them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SITE = ROOT / "infra" / "site"


def load(name: str) -> ModuleType:
    """Load a module of infra/site, which is no package: MkDocs loads it by its path."""
    spec = importlib.util.spec_from_file_location(f"site_{name}", SITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "link", "expected"),
    [
        ("docs/deploy.md", "image.md#build", "image.md#build"),
        ("docs/how-to/embed.md", "../embedding.md", "../embedding.md"),
        ("docs/deploy.md", "../SECURITY.md", "project/security.md"),
        ("CONTRIBUTING.md", "docs/formats.md", "../formats.md"),
        ("docs/deploy.md", "../infra/machines/install.sh", "{repository}/blob/main/infra/machines/install.sh"),
        ("docs/architecture.md", "adr/", "adr/index.md"),
        ("docs/deploy.md", "#kubernetes", "#kubernetes"),
        ("docs/deploy.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/deploy.md", "absent.md", "absent.md"),
    ],
)
def test_link_leads_to_the_site_or_to_the_repository(source: str, link: str, expected: str) -> None:
    site = load("repository")
    docs = ["deploy.md", "image.md", "embedding.md", "formats.md", "architecture.md", "adr/index.md", "how-to/embed.md"]
    expected = expected.format(repository=site.repository_url())
    assert site.rewrite_links(f"[a]({link})", source, site.site_pages(docs)) == f"[a]({expected})"


def test_links_in_code_stay() -> None:
    site = load("repository")
    text = "`[a](../SECURITY.md)`\n\n```text\n[a](../SECURITY.md)\n```\n"
    assert site.rewrite_links(text, "docs/deploy.md", site.site_pages(["deploy.md"])) == text


def test_every_page_of_docs_is_in_the_navigation() -> None:
    """The strict build fails otherwise; this test says so within a second."""
    text = (ROOT / "mkdocs.yml").read_text()
    named = {line.rpartition(" ")[2] for line in text.splitlines() if line.endswith(".md")}
    docs = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    missing = sorted(page for page in docs - named if not page.startswith("adr/"))
    assert missing == [], "add the page to nav in mkdocs.yml"
    assert yaml.safe_load(text)["strict"] is True


def test_checker_finds_dead_links_dead_anchors_and_loads_from_the_network(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<script src="https://cdn.example/a.js"></script><a href="b.html#there">a</a><a href="b.html#gone">b</a>'
        '<a href="c.html">c</a><a href="https://example.org">d</a><a href="#top">e</a><h1 id="top">f</h1>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">a</h1>')
    assert load("check_links").check(tmp_path) == [
        "index.html loads https://cdn.example/a.js from the network",
        "index.html links to b.html#gone, but the page has no such anchor",
        "index.html links to c.html, which is no file of the site",
    ]
