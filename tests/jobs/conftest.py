"""Fixtures of other suites that the subcommands are tested with."""

from tests.search.conftest import text_index

__all__ = ["text_index"]
