"""Old plans of a table, with their epochs, links, totals and records of runs.

The plans of a table form a chain: each plan has a link to the next one. A running process may follow a link of the
first plan that it has read earlier, so all plans from the target of the oldest such link on must stay.
``shorten_chain`` links the first plan to a recent one. Once that link is older than the retention, no process follows
the older links, and the plans between are deleted. What remains of them: the record and the link of a plan that one of
the chain follows, and the links of plans that were given up, so that an attempt that has stalled for longer than the
retention cannot commit such a plan.

A plan outside of the chain is kept as long as it may be linked: while its base is the newest plan.
"""

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from lsr_prod.encoding.commit.committer import waves_done
from lsr_prod.encoding.commit.fence import EPOCHS_FOLDER
from lsr_prod.encoding.plans.successors import (
    PLANS_FOLDER,
    SUCCESSORS_FOLDER,
    PlanLink,
    link_shortcut,
    plan_chain,
    read_record,
    record_name,
    valid_links,
)
from lsr_prod.encoding.run_records import RUNS_FOLDER, WAVES_FOLDER
from lsr_prod.encoding.summary import TOTALS_FOLDER
from lsr_prod.encoding.tables import Table
from lsr_prod.encoding.tables.sparse_table import PLAN_PROPERTY
from lsr_prod.logs import get_log
from lsr_prod.storage import in_threads
from lsr_prod.storage.disk import Entry

log = get_log(__name__)

_RECORDS = (TOTALS_FOLDER, RUNS_FOLDER, WAVES_FOLDER)
_FOLDERS = "|".join(map(re.escape, (PLANS_FOLDER, EPOCHS_FOLDER, SUCCESSORS_FOLDER, *_RECORDS)))
_NAME = re.compile(
    rf"^(?P<folder>{_FOLDERS})/(?P<plan>[0-9a-f]+)(?P<rest>/\d+\.json|\.json|\.(?:files|slices)\.parquet)$"
)


def find_old_plans(table: Table, entries: Sequence[Entry], horizon: float) -> dict[str, list[Entry]]:
    """Find the files of plans that nothing needs; the kinds are those of ``garbage.KINDS``."""
    root = table.properties.get(PLAN_PROPERTY)
    if root is None:
        return {}
    found: dict[str, list[Entry]] = defaultdict(list)
    files = _by_plan(entries)
    links = _links_in_use(table, root, {entry.name: entry.modified for entry in entries}, horizon)
    newest, chain = _reachable(table, root, links)
    for plan, own in files.items():
        found["epochs"] += _needless_epochs(own[EPOCHS_FOLDER], in_chain=plan in chain)
    if links:
        in_use = {link.name for link in links}
        found["successors"] += [entry for entry in files[root][SUCCESSORS_FOLDER] if entry.name not in in_use]
        found["totals"] += [entry for folder in _RECORDS for entry in files[root][folder]]
    plans = [*files]
    headers = dict(zip(plans, in_threads(partial(read_record, table.store), plans), strict=True))
    bases = {header.get("base") for plan, header in headers.items() if plan in chain and header is not None}
    for plan, header in headers.items():
        if plan in chain or (header is not None and header.get("base") == newest):
            continue
        own = files[plan]
        found["plan_lists"] += [entry for entry in own[PLANS_FOLDER] if entry.name != record_name(plan)]
        found["totals"] += [entry for folder in _RECORDS for entry in own[folder]]
        if plan in bases:  # an attempt at its successor looks for its record and its link
            continue
        found["plan_records"] += [entry for entry in own[PLANS_FOLDER] if entry.name == record_name(plan)]
        if header is not None and waves_done(table, plan) >= header.get("waves", math.inf):
            found["successors"] += own[SUCCESSORS_FOLDER]
    return {kind: [entry for entry in some if entry.modified < horizon] for kind, some in found.items()}


def shorten_chain(table: Table) -> None:
    """Link the first plan to the newest plan of the chain that has committed a wave, if plans are between them."""
    root = table.properties.get(PLAN_PROPERTY)
    first = None if root is None else next(valid_links(table.store, root, partial(waves_done, table)), None)
    if root is None or first is None:
        return
    chain = _chain_from(table, first.plan)
    committed = [plan for plan in chain if waves_done(table, plan)]
    if committed and committed[-1] != first.plan:
        link_shortcut(table.store, root, committed[-1], first.waves)
        log.info("chain shortened", extra={"fields": {"table": table.store.uri, "plans": chain.index(committed[-1])}})


def _by_plan(entries: Sequence[Entry]) -> defaultdict[str, defaultdict[str, list[Entry]]]:
    """Return the files of plans: plan -> folder -> files."""
    files: defaultdict[str, defaultdict[str, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        if match := _NAME.match(entry.name):
            files[match["plan"]][match["folder"]].append(entry)
    return files


def _links_in_use(table: Table, root: str, times: Mapping[str, float], horizon: float) -> list[PlanLink]:
    """Return the links of the first plan that a running process may follow: the newest old one and all younger ones.

    Without an old one nothing is known about the links that are followed, and the result is empty.
    """
    in_use = []
    for link in valid_links(table.store, root, partial(waves_done, table)):
        in_use.append(link)
        if times.get(link.name, horizon) < horizon:
            return in_use
    return []


def _reachable(table: Table, root: str, links: Sequence[PlanLink]) -> tuple[str, set[str]]:
    """Return the newest plan, and all plans that a running process may find."""
    chains = [_chain_from(table, plan) for plan in dict.fromkeys(link.plan for link in links)] or [
        _chain_from(table, root)
    ]
    return chains[0][-1], {root, *(plan for chain in chains for plan in chain)}


def _chain_from(table: Table, plan: str) -> list[str]:
    return plan_chain(table.store, plan, partial(waves_done, table))


def _needless_epochs(epochs: Sequence[Entry], *, in_chain: bool) -> list[Entry]:
    """Return the epochs without the newest one of a plan of the chain: only that one may commit."""
    ordered = sorted(epochs, key=lambda entry: int(entry.name.rpartition("/")[2].removesuffix(".json")))
    return ordered[:-1] if in_chain else ordered
