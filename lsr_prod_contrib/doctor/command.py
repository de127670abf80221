"""The command ``doctor``."""

import argparse
from collections import Counter
from functools import partial

from lsr_prod.config import Deployment
from lsr_prod.jobs.terminal.output import print_json, print_result, say
from lsr_prod.jobs.terminal.shell import CommandParser, Job
from lsr_prod_contrib.doctor import examine

_SECTIONS = ("ray", "storage", "train", "export", "encode", "index", "maintain")
_MARKS = {"ok": "ok     ", "warning": "warning", "fault": "FAULT  "}


def _add_options(parser: CommandParser) -> None:
    parser.add_argument("--nodes", action="store_true", help="check every node of the cluster too")
    parser.add_argument("--json", action="store_true", help="print JSON lines only")


@partial(Job, "doctor", needs=(), optional=_SECTIONS, add_options=_add_options, output_required=True)
def doctor(deployment: Deployment, given: argparse.Namespace) -> int:
    """Check this machine, and the stores and the cluster of a deployment, before jobs run on them.

        lsr-prod doctor [--config deployment.yaml] [--nodes] [--json]

    Looks at Python and packages, disks, file limits, shared memory, compiled kernels, GPUs, Ray's token and ports; and at
    each store that the jobs of the deployment write: rights, conditional writes, listings, deletion, clock. What it writes
    there is deleted again. ``--nodes`` checks every node of the cluster too.

    Prints a line per check with its remedy, and one line ``RESULT {json}``; with ``--json`` only JSON, one line per check.
    Exit codes: 0 done, no fault; 1 a fault was found; 2 bad configuration.
    """
    verdicts: Counter[str] = Counter()
    for finding in examine(deployment, nodes=given.nodes):
        verdicts[finding.verdict] += 1
        if given.json:
            print_json(finding.to_json())
        else:
            say(f"{_MARKS[finding.verdict]}  {finding.check}: {finding.found}")
            if finding.remedy:
                say(f"         {finding.remedy}")
    if not given.json:
        print_result({"checks": verdicts.total(), "warnings": verdicts["warning"], "faults": verdicts["fault"]})
    return 1 if verdicts["fault"] else 0
