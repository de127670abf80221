"""Pages of the repository outside of ``docs/`` on the site, and links between pages."""

import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["PAGES", "ROOT", "repository_url", "rewrite_links", "site_pages"]

ROOT = Path(__file__).parents[2]
PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Path in the repository -> path on the site, of pages outside of ``docs/``."""

_CODE_OR_TARGET = re.compile(
    r"^ *(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^ *(?P=fence)[`~]*$"
    r"|(?P<ticks>`+)[^\n]*?(?P=ticks)"
    r"|(?<=\]\()(?P<target>[^()\s]+)(?=\))",
    re.MULTILINE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|/")


def repository_url() -> str:
    """Return the address of the repository, from ``project.urls`` of pyproject.toml."""
    url: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    return url


def site_pages(docs: Iterable[str]) -> dict[str, str]:
    """Return path in the repository -> path on the site, of all files of the site.

    Args:
        docs: paths of the files of ``docs/``, relative to it.
    """
    return {f"docs/{path}": path for path in docs} | PAGES


def rewrite_links(markdown: str, source: str, pages: Mapping[str, str]) -> str:
    """Return the text of a page with links that work on the site.

    A link to a page of the site becomes relative to the page; a link to another file or folder of the repository
    becomes its address in the repository. Code, links to anchors and addresses stay, and so does a link to a file that
    does not exist: the strict build reports it.

    Args:
        markdown: text of the page.
        source: path of the page in the repository.
        pages: path in the repository -> path on the site.
    """
    here = posixpath.dirname(pages[source])

    def rewrite(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or _ELSEWHERE.match(target):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        index = posixpath.join(path, "index.md")
        if (page := pages.get(path) or pages.get(index)) is not None:
            return posixpath.relpath(page, here or ".") + hash_sign + anchor
        if (ROOT / path).exists():
            return f"{repository_url()}/blob/main/{path}{hash_sign}{anchor}"
        return match[0]

    return _CODE_OR_TARGET.sub(rewrite, markdown)
