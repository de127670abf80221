"""Mutants that no test detects, each with its reason, from ``survivors.toml``."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.operators import Mutant

__all__ = ["known_survivors", "unknown_entries"]

_FILE = Path(__file__).with_name("survivors.toml")


def known_survivors() -> dict[str, str]:
    """Return the reason of each mutant by its name."""
    entries = tomllib.loads(_FILE.read_text())
    return {
        f"{function}: {change}": reason for function, changes in entries.items() for change, reason in changes.items()
    }


def unknown_entries(mutants: Iterable[Mutant]) -> list[str]:
    """Return the entries that name none of all mutants: their code was changed or deleted."""
    return sorted(known_survivors().keys() - {mutant.name for mutant in mutants})
