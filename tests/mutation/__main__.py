"""Change the code of the protocol, and list the changes that no test detects.

    make mutants
    python -m tests.mutation [--module encoding/commit tables/table.py] [--only Epoch.check take_epoch] [--sample 50]
        [--seed 7] [--processes 2] [--budget 10]

Every condition, guard, ``raise`` and call without a result of the modules in ``targets.TARGETS`` is changed, one at a
time (``operators`` says how), and the tests that execute the changed lines run until one fails. A survivor gets a test,
or its code is deleted because nothing needs it, or ``survivors.toml`` says why no test can detect it.

``--module`` selects modules and folders, ``--only`` mutants whose name contains one of the texts, ``--sample`` that
many mutants at random by ``--seed``. A mutant is tested with the fastest tests that take at most ``--budget`` seconds
without it.

Ends with one line ``RESULT {json}``. Exit code 1 if less than 95 % of the mutants are detected, if a survivor has no
reason, if an entry of ``survivors.toml`` names no mutant, or if a test fails without a mutant.
"""

import argparse
import random
import resource
import time
from pathlib import Path

import lsr_prod
from lsr_prod.jobs.terminal.shell import print_result
from tests.mutation.operators import Mutant, find_mutants
from tests.mutation.session import Outcome, run_mutants
from tests.mutation.survivors import known_survivors, unknown_entries
from tests.mutation.targets import modules

ROOT = Path(lsr_prod.__file__).parent
_SHARE = 0.95


def main() -> int:
    """Run the selected mutants."""
    arguments = _arguments()
    every = [mutant for file in modules(ROOT) for mutant in find_mutants(ROOT, file)]
    unknown = unknown_entries(every)
    for entry in unknown:
        print(f"NO SUCH MUTANT {entry}; remove it from survivors.toml, or correct its name", flush=True)
    mutants = _selected(every, arguments)
    reasons, outcomes = known_survivors(), list[Outcome]()

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        name, seconds = outcome.mutant.name, f"{outcome.seconds:.1f} s"
        if outcome.killed:
            print(f"killed {name} [{seconds}, {outcome.by}]", flush=True)
        else:
            reason = reasons.get(name) or ("NO REASON" if outcome.tests else "NO REASON; no test executes it")
            print(f"SURVIVED {name} [{seconds}, {outcome.tests} tests]: {reason}", flush=True)

    began = time.monotonic()
    wrong = run_mutants(ROOT, mutants, report, processes=arguments.processes, budget=arguments.budget)
    survivors = [outcome.mutant.name for outcome in outcomes if not outcome.killed]
    for outcome in outcomes:
        if outcome.killed and outcome.mutant.name in reasons:
            print(f"DETECTED NOW {outcome.mutant.name}; remove it from survivors.toml", flush=True)
    killed = len(outcomes) - len(survivors)
    share = killed / len(outcomes) if outcomes else 0.0
    unexplained = [name for name in survivors if name not in reasons]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print_result(
        {
            "mutants": len(outcomes),
            "killed": killed,
            "killed_share": round(share, 4),
            "survivors": len(survivors),
            "without_reason": len(unexplained),
            "unknown_entries": len(unknown),
            "failing_without_mutant": wrong,
            "seed": arguments.seed,
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        }
    )
    return int(share < _SHARE or bool(unexplained) or bool(unknown) or wrong > 0 or len(outcomes) < len(mutants))


def _selected(every: list[Mutant], arguments: argparse.Namespace) -> list[Mutant]:
    files = modules(ROOT, arguments.module)
    mutants = [mutant for mutant in every if mutant.file in files]
    if arguments.only:
        mutants = [mutant for mutant in mutants if any(text in mutant.name for text in arguments.only)]
    if arguments.sample is None or arguments.sample >= len(mutants):
        return mutants
    chosen = random.Random(arguments.seed).sample(range(len(mutants)), arguments.sample)
    return [mutants[place] for place in sorted(chosen)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", nargs="+", default=[], help="modules or folders below lsr_prod")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="only mutants whose name contains one")
    parser.add_argument("--sample", type=int, metavar="N", help="this many mutants at random; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="mutants at a time")
    parser.add_argument("--budget", type=float, default=10, help="processor seconds of tests per mutant")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
