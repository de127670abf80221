"""Check the links of the built site: ``python infra/site/check_links.py build/site``.

Every internal link must lead to a file of the site, and its anchor to an element. Scripts, styles and pictures must be
files of the site: a browser loads nothing from the network. Addresses of other sites are not opened.
"""

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Links", "check", "read_links"]

_LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
_NOT_LOADED = {"canonical", "next", "prev", "alternate"}


@dataclass
class Links(HTMLParser):
    """Ids, links and loaded files of one page.

    Attributes:
        ids: of the elements.
        targets: addresses of links.
        loaded: addresses of scripts, styles and pictures.
    """

    ids: set[str] = field(default_factory=set)
    targets: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes of an element."""
        values = {name: value for name, value in attrs if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values and (name == "id" or tag == "a")}
        if tag == "a" and "href" in values:
            self.targets.append(values["href"])
        name = _LOADED.get(tag)
        if name in values and values.get("rel") not in _NOT_LOADED:
            self.loaded.append(values[name])


def read_links(page: Path) -> Links:
    """Return ids and links of a page."""
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def check(site: Path) -> list[str]:
    """Return one sentence per dead internal link or anchor, and per address that a browser would load.

    Args:
        site: folder of the built site.
    """
    # 404.html is served for any address, so its links begin at the root of a server.
    pages = {page.resolve(): read_links(page) for page in sorted(site.rglob("*.html")) if page.name != "404.html"}
    problems = []
    for page, links in pages.items():
        name = page.relative_to(site.resolve())
        problems += [f"{name} loads {one} from the network" for one in links.loaded if urlsplit(one).netloc]
        for address in sorted({*links.targets, *links.loaded}):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                problems.append(f"{name} links to {address}, which is no file of the site")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                problems.append(f"{name} links to {address}, but the page has no such anchor")
    return problems


def main() -> int:
    """Print all problems; return 1 if there are any."""
    site = Path(sys.argv[1])
    problems = check(site)
    print("\n".join([*problems, f"{sum(1 for _ in site.rglob('*.html'))} pages, {len(problems)} dead links"]))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
