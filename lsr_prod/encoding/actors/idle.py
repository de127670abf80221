"""Report of actors that have nothing to encode because a wave has too few cells for them."""

from lsr_prod.encoding.plans.plan import Plan
from lsr_prod.logs import get_log

log = get_log(__name__)

_MEGABYTE = 1_000_000


def report_idle_actors(plan: Plan, actors: int) -> None:
    """Log a warning if waves have fewer cells than there are actors, and which setting of a new plan changes that.

    The plan does not follow the size of the cluster: the markers of its finished cells are valid on every cluster.
    """
    cells = min((len(plan.cells_of(wave)) for wave in range(plan.waves)), default=actors)
    if cells >= actors:
        return
    if plan.largest_wave_bytes >= actors * _MEGABYTE:
        remedy = f"lower encode.cell_megabytes to {plan.largest_wave_bytes // (actors * _MEGABYTE)}"
    elif plan.waves > 1:
        remedy = f"raise encode.wave_megabytes to {actors * plan.header.encode['cell_megabytes']}"
    else:
        return  # there is less than a megabyte for each actor
    fields = {"cells": cells, "actors": actors, "remedy": f"{remedy} for the next plan"}
    log.warning("fewer cells than actors", extra={"fields": fields})
