"""Report pages: self-contained HTML files about a query, an evaluation or a sweep, and the same as JSON.

A module per page has one function ``data -> Page``. ``sections`` defines what a page is, ``charts`` has the Vega-Lite
specs that pages share, ``write`` makes HTML and JSON of a page and stores both. Needs the extra ``pages``.
"""

from lsr_prod_contrib.pages.sections import Chart, Page
from lsr_prod_contrib.pages.write import write_page

__all__ = ["Chart", "Page", "write_page"]
