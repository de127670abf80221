"""Report pages in a headless browser: what must hold for every page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

MAX_BYTES = 5_000_000
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; a skip where it is absent, a failure in CI.

    Its event loop counts as running in this thread, so ``asyncio.run`` cannot be called before it is closed.
    """
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed; run make browser")
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: Browser, file: Path | str, *, scheme: Literal["light", "dark"] = "light", width: int = 1280
) -> Iterator[tuple[Page, list[str]]]:
    """A page of a file, all charts drawn, and the list to which its problems are added.

    Problems are messages of type error or warning, uncaught errors, dialogs, and requests of anything but the file.
    """
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    problems: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(f"console {message.type}: {message.text}")

    page.on("console", heard)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("request", lambda request: problems.extend([] if request.url == url else [f"request: {request.url}"]))
    page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    url = Path(file).absolute().as_uri()
    page.goto(url)
    if page.locator("figure[data-chart]").count():
        page.wait_for_selector("html[data-charts=drawn]", state="attached", timeout=60_000)
    try:
        yield page, problems
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """Serious and critical violations that axe-core finds, with the first elements."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {[node['target'] for node in one['nodes']][:3]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def wider_than_window(page: Page) -> bool:
    """Return whether the page is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"))


def problems_of(browser: Browser, file: Path | str) -> list[str]:
    """Everything that is wrong with a page: on a desk in light, on a phone in dark, and on paper."""
    found = []
    if (size := Path(file).stat().st_size) > MAX_BYTES:
        found.append(f"{size} bytes")
    with opened(browser, file) as (page, problems):
        found += [*violations(page), *problems]
        if wider_than_window(page):
            found.append("wider than the window")
        if not page.pdf().startswith(b"%PDF"):
            found.append("cannot be printed")
    with opened(browser, file, scheme="dark", width=375) as (page, problems):
        found += [f"dark, narrow: {one}" for one in [*violations(page), *problems]]
        if wider_than_window(page):
            found.append("wider than a phone")
    return found
