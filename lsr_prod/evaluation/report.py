"""The table of an evaluation: one row a system."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["print_systems"]


def print_systems(systems: Sequence[Mapping[str, Any]]) -> None:
    """Print measures, matched documents and latencies of ``evaluate_index``'s systems on stdout."""
    measures = list(systems[0]["measures"]) if systems else []
    table = Table(title="quality and latency", title_justify="left")
    table.add_column("system")
    for heading in (*measures, "matched/query", "match p50 ms", "p95", "text p50 ms", "p95"):
        table.add_column(heading, justify="right")
    for system in systems:
        table.add_row(
            system["name"],
            *(f"{system['measures'][measure]:.3f}" for measure in measures),
            f"{system['matched']:,.0f}",
            *(f"{system[key]:.2f}" for key in ("match_p50_ms", "match_p95_ms", "text_p50_ms", "text_p95_ms")),
        )
    Console(width=max(100, Console().width)).print(table)
