"""A browser for the suite of report pages."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.contrib.pages.browser import chromium


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests of this package."""
    with chromium() as running:
        yield running
