"""Mutate the protocol systematically, and count the mutants that no test detects.

make mutants
python -m tests.mutation [--module encoding/commit tables/delta.py] [--only "Epoch.check"] [--sample 50] [--seed 7]
    [--processes 2] [--longest 4] [--list]
"""

import argparse
import random
import resource
import time
from pathlib import Path

import lsr_prod
from lsr_prod.jobs.terminal.run import print_result
from tests.mutation.operators import find_mutants
from tests.mutation.session import Outcome, run_mutants
from tests.mutation.targets import modules

ROOT = Path(lsr_prod.__file__).parent


def main() -> int:
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--module", nargs="+", default=[])
    a.add_argument("--only", default="")
    a.add_argument("--sample", type=int)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--processes", type=int, default=2)
    a.add_argument("--longest", type=float, default=4)
    arguments = a.parse_args()
    mutants = [m for file in modules(ROOT, arguments.module) for m in find_mutants(ROOT, file)]
    mutants = [m for m in mutants if arguments.only in m.name]
    if arguments.sample:
        mutants = random.Random(arguments.seed).sample(mutants, min(arguments.sample, len(mutants)))
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        how = f"killed by {outcome.by}" if outcome.killed else "SURVIVED"
        print(f"{how} ({outcome.tests} tests, {outcome.seconds:.1f} s) {outcome.mutant.name}", flush=True)

    began = time.monotonic()
    run_mutants(ROOT, mutants, report, processes=arguments.processes, budget=10)
    killed = sum(o.killed for o in outcomes)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print_result(
        {
            "mutants": len(outcomes),
            "killed": killed,
            "killed_share": round(killed / max(1, len(outcomes)), 4),
            "seconds": round(time.monotonic() - began),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime),
        }
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
