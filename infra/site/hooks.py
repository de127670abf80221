"""Hooks of MkDocs: add pages of the API, of the decisions and of the repository, and rewrite links between them."""

import ast
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository import PAGES, ROOT, rewrite_links, site_pages

ADRS = "adr/index.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that the hook makes to the navigation."""
    sections: dict[str, list[Any]] = {title: pages for entry in config.nav or [] for title, pages in entry.items()}
    sections["Reference"].append({"API": [f"api/{name}.md" for name in public_packages()]})
    sections["Project"].insert(1, {"Decisions": [ADRS, *(f"adr/{path.name}" for path in decisions())]})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files of these pages."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for name in public_packages():
        files.append(
            File.generated(config, f"api/{name}.md", content=f"---\ntitle: {name}\n---\n# `{name}`\n\n::: {name}\n")
        )
    files.append(File.generated(config, ADRS, content=list_of_decisions()))
    files.append(File.generated(config, "llms.txt", content=list_of_pages(config)))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Rewrite the links of a page of the repository."""
    pages = site_pages(file.src_uri for file in files)
    source = next((path for path, uri in pages.items() if uri == page.file.src_uri and (ROOT / path).exists()), None)
    return markdown if source is None else rewrite_links(markdown, source, pages)


def public_packages() -> list[str]:
    """Return ``lsr_prod``, its errors, and the packages and adapters that have ``__all__``: the public interface."""
    found = [path.parent.name for path in ROOT.glob("lsr_prod/*/__init__.py") if _has_all(path)]
    adapters = [f"integrations.{path.stem}" for path in ROOT.glob("lsr_prod/integrations/*.py") if _has_all(path)]
    return ["lsr_prod", *(f"lsr_prod.{name}" for name in sorted([*found, *adapters, "errors"]))]


def decisions() -> list[Path]:
    """Return the files of the decision records, oldest first."""
    return sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))


def list_of_decisions() -> str:
    """Return the page that lists all decision records by their titles."""
    titles = [(path.name, path.read_text().split("\n", 1)[0].removeprefix("# ")) for path in decisions()]
    lines = [f"- [{title.replace('.', chr(92) + '.', 1)}]({name})" for name, title in titles]
    return "\n".join(["# Decisions", "", "One page per decision: what it is, why, and what follows.", "", *lines, ""])


def list_of_pages(config: MkDocsConfig) -> str:
    """Return ``llms.txt``: the pages of the navigation by section, with links, for language models (llmstxt.org)."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for entry in config.nav or []:
        for title, content in entry.items():
            pages = _titled(title, content)
            lines += ["", f"## {title}", ""] if isinstance(content, list) else []
            lines += [f"- [{name}]({path.removesuffix('.md')}.html)" for name, path in pages]
    return "\n".join([*lines, ""])


def _titled(title: str, content: Any) -> list[tuple[str, str]]:
    """Return title and file of every page of a section; a page without a title has the name of its file."""
    if isinstance(content, str):
        return [(title, content)]
    pages: list[tuple[str, str]] = []
    for entry in content:
        named = entry if isinstance(entry, dict) else {Path(entry).stem: entry}
        pages += [page for name, inner in named.items() for page in _titled(name, inner)]
    return pages


def _has_all(path: Path) -> bool:
    return any(
        isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets)
        for node in ast.parse(path.read_text()).body
    )
