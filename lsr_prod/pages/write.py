"""Write a report page as HTML and as JSON."""

from collections.abc import Mapping
from pathlib import Path

from lsr_prod.pages.page import Page
from lsr_prod.pages.render import page_json, render_page
from lsr_prod.storage.folders import absolute, store_file


def write_page(destination: str | Path, page: Page, options: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Write ``<name>.html`` and ``<name>.json``; files of these names are replaced.

    Args:
        destination: folder or URI; a folder is created if it is absent.
        page: the page.
        options: options of the object store.

    Returns:
        Absolute path or URI of the HTML file and of the JSON file.

    Raises:
        StorageError: the store or the disk fails.
    """
    html, data = render_page(page), page_json(page)
    place = f"{absolute(str(destination)).rstrip('/')}/{page.name}"
    store_file(f"{place}.json", data.encode(), options)
    store_file(f"{place}.html", html.encode(), options)
    return f"{place}.html", f"{place}.json"
