"""Shared by the kinds of ``lsr-prod inspect``: where the page goes, and what is printed."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from lsr_prod.errors import ConfigError, SourceError
from lsr_prod.jobs.terminal.output import print_result, say
from lsr_prod.jobs.terminal.shell import CommandParser, add_store_option, location, store_options
from lsr_prod.operations.pages import Page, write_page
from lsr_prod.storage.folders import open_text


def page_parser(kind: str, manual: str | None) -> CommandParser:
    """Return a parser with the options of all kinds of pages."""
    options = CommandParser(f"inspect {kind}", manual)
    options.add_argument(
        "--output", metavar="DIR", type=location, default=".", help="folder or URI for the page (default: this folder)"
    )
    add_store_option(options)
    return options


def read_result(given: argparse.Namespace, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the JSON object of ``given.file``, or of the last line ``RESULT {json}`` of a job's output."""
    with open_text(given.file, store_options(given)) as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise SourceError(f"{given.file} is not UTF-8 ({error}); give a JSON file") from error
    results = [line for line in text.splitlines() if line.startswith("RESULT {")]
    try:
        result = json.loads(results[-1].removeprefix("RESULT ") if results else text)
    except ValueError as error:
        raise ConfigError("FILE", f"{given.file} is not JSON ({error})", "give the file that the job wrote") from error
    absent = [key for key in keys if not isinstance(result, dict) or key not in result]
    if absent:
        problem = f"{given.file} has no {', '.join(absent)}"
        raise ConfigError("FILE", problem, f"give a JSON object with {', '.join(keys)}")
    return dict(result)


def save(given: argparse.Namespace, page: Page, facts: Mapping[str, Any] | None = None) -> None:
    """Write the page, print where, and print the line for machines."""
    html, data = write_page(given.output, page, store_options(given))
    for line in (page.title, f"  page  {html}", f"  JSON  {data}"):
        say(line)
    print_result({"page": html, "json": data, **(facts or {})})
