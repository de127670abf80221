"""Inject faults into encode jobs and trainings and count lost, duplicated and wrong documents.

    make faults
    python -m tests.faults [--seed 7] [--share 10] [--parts scenarios mutants lives committers resume ray training disk
        peer] [--mutants "no fence"] [--places s3] [--world 12] [--ray-kills 10] [--training-kills 12]
        [--lives 2000] [--life SEED]

All random choices derive from one seed, which is printed (or taken from ``LSR_FAULTS_SEED``). ``--world`` repeats a
single world of a seed, ``--life`` the life of a seed, or a script that a failed life printed. ``LSR_TEST_S3_ENDPOINT``
names a server for the worlds on ``s3``. Ends with one line ``RESULT {json}``. Exit code 1 if anything was lost, stale,
duplicated, truncated or wrong, or if a job met a full disk otherwise than it should; and if a mutant of the protocol
was missed or the peer lost nothing, because then the harness detects too little.
"""

import argparse
import ctypes
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"  # of the endpoint on loopback


from lsr_prod.jobs.terminal.shell import print_result
from tests.faults.campaign import PLACES, plan_worlds, resume_at_half, run_worlds
from tests.faults.chain import make_chain
from tests.faults.corpus import make_corpus
from tests.faults.lives.campaign import LIVES_OF_A_SEED, run_lives, run_script
from tests.faults.mutants import MUTANTS
from tests.faults.mutation import run_mutants, run_scenarios
from tests.faults.oracle import FINDINGS, Findings
from tests.objectstore.endpoint import local_s3

PARTS = ("scenarios", "mutants", "lives", "committers", "resume", "ray", "training", "disk", "peer")


def main() -> int:
    """Run the selected parts."""
    arguments = _arguments()
    _may_mount()
    print(f"seed {arguments.seed}; repeat with LSR_FAULTS_SEED={arguments.seed}", flush=True)
    started, findings = time.monotonic(), Findings()
    result: dict[str, Any] = {"seed": arguments.seed}
    kinds: Counter[str] = Counter()
    failed = False
    for part in arguments.parts:
        began = time.monotonic()
        values, found, landed = _RUN[part](arguments)
        failed |= values.pop("failed", False)
        kinds += landed
        findings.add(found)
        print(f"{part}: {time.monotonic() - began:.0f} s, {values}", flush=True)
        result |= values
    for sentence in findings.sentences[:50]:
        print(f"FOUND {sentence}", flush=True)
    counts = {kind: getattr(findings, kind) for kind in FINDINGS}
    print_result(
        {
            "faults": kinds.total(),
            **counts,
            **result,
            "landed": dict(sorted(kinds.items())),
            "seconds": round(time.monotonic() - started, 1),
        }
    )
    return int(failed or not findings.clean)


def _scenarios(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    with tempfile.TemporaryDirectory(prefix="lsr-faults-", ignore_cleanup_errors=True) as name:
        number, findings = run_scenarios(Path(name), make_chain(arguments.seed))
    return {"scenarios": number}, findings, Counter()


def _mutants(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    chosen = [mutant for mutant in MUTANTS if not arguments.mutants or mutant.name in arguments.mutants]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="lsr-faults-", ignore_cleanup_errors=True) as name:
        for verdict in run_mutants(Path(name), make_chain(arguments.seed), chosen):
            mutant = verdict.mutant
            outcome = "caught by" if verdict.caught else f"MISSED {verdict.crash} by"
            where = f"{mutant.scenario}, {verdict.seconds:.1f} s: {verdict.found[:1]}"
            print(f"mutant {mutant.name}: {outcome} {where}", flush=True)
            missed += not verdict.caught
    return {"mutants": len(chosen), "mutants_missed": missed, "failed": missed > 0}, Findings(), Counter()


def _lives(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    if arguments.life is not None and not arguments.life.isdigit():
        tally = run_script(arguments.life)
    else:
        first = arguments.seed % LIVES_OF_A_SEED * LIVES_OF_A_SEED
        seeds = range(first, first + max(arguments.lives // arguments.share, 1))
        tally = run_lives(seeds if arguments.life is None else [int(arguments.life)])
    for script in tally.shortened:
        print(f"SHORTENED --parts lives --life '{script}'", flush=True)
    landed = {name: tally.counts[name] for name in ("killed", "killed.build", "overtaken")}
    values = {"lives": tally.lives, "nights_refused_share": tally.refused_share, "failed_lives": tally.failed[:20]}
    counts = dict(sorted(tally.counts.items()))
    return {**values, "life_events": counts}, tally.findings, Counter({f"life.{k}": n for k, n in landed.items()})


def _committers(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    worlds = plan_worlds(arguments.seed, arguments.share)
    worlds = [world for world in worlds if world.place in arguments.places]
    if arguments.world is not None:
        worlds = [world for world in worlds if world.number == arguments.world]
    with local_s3() as options:
        tally = run_worlds(arguments.seed, worlds, options)
    return (
        {"worlds": len(worlds), "in_increments": tally.increments, "endings": dict(sorted(tally.endings.items()))},
        tally.findings,
        tally.landed,
    )


def _resume(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    resumed = resume_at_half(arguments.seed)
    values = {"documents": resumed.documents, "largest_wave": resumed.largest_wave, "redone": resumed.redone}
    return {**values, "failed": resumed.redone > resumed.largest_wave}, resumed.findings, Counter({"kill.half": 1})


def _ray(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    from tests.faults.cluster import local_cluster
    from tests.faults.ray_kills import VICTIMS, RayKills

    rng = random.Random(f"ray {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="lsr-faults-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        bundle = Path(arguments.bundle) if arguments.bundle else _export(folder)
        chain = make_chain(arguments.seed, documents=arguments.ray_documents, poison_reason=None)
        victims = [victim for victim in VICTIMS for _ in range(arguments.ray_kills)]
        rng.shuffle(victims)
        with local_cluster(2) as cluster:
            kills = RayKills(cluster, folder, bundle, chain, rng)
            kills.run(victims)
        landed = Counter({f"ray.{victim}": count for victim, count in kills.landed.items()})
        return {"ray_runs": dict(kills.runs)}, kills.findings, landed


def _training(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    from tests.faults.training.campaign import Campaign, plan_kills

    with tempfile.TemporaryDirectory(prefix="lsr-faults-", ignore_cleanup_errors=True) as name:
        found = Campaign(Path(name), arguments.seed).run(plan_kills(arguments.seed, arguments.training_kills))
    findings = Findings()
    for sentence in found.sentences:
        findings.note("wrong", 1, f"training: {sentence}")
    landed = Counter({f"training.{kill}": count for kill, count in found.landed.items()})
    return {"trainings": found.trainings, "training_restarts": found.restarts}, findings, landed


def _disk(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    options = ["--seed", str(arguments.seed), "--share", str(arguments.share)]
    command = [sys.executable, "-m", "tests.faults.full_disk", *options]
    found: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as campaign:
        assert campaign.stdout is not None
        for line in campaign.stdout:
            if line.startswith("RESULT "):
                found = json.loads(line.removeprefix("RESULT "))
            else:
                print(line, end="", flush=True)
    landed = Counter({f"disk.{job}": points for job, points in found.pop("full_disk_jobs", {}).items()})
    return {**found, "failed": campaign.returncode != 0}, Findings(), landed


def _peer(arguments: argparse.Namespace) -> tuple[dict[str, Any], Findings, Counter[str]]:
    from tests.faults.peer import run_peer

    with tempfile.TemporaryDirectory(prefix="lsr-faults-", ignore_cleanup_errors=True) as name:
        corpus = make_corpus(Path(name) / "corpus", arguments.seed, padding=10)
        found = run_peer(Path(name) / "peer", corpus)
    lost = sum(findings.lost for findings in found.values())
    doubled = sum(findings.doubled for findings in found.values())
    values = {"peer_lost": lost, "peer_doubled": doubled, "peer_documents": len(corpus.documents)}
    return {**values, "failed": not lost or not doubled}, Findings(), Counter()


_RUN = {
    "scenarios": _scenarios,
    "mutants": _mutants,
    "lives": _lives,
    "committers": _committers,
    "resume": _resume,
    "ray": _ray,
    "training": _training,
    "disk": _disk,
    "peer": _peer,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    seed = os.environ.get("LSR_FAULTS_SEED")
    parser.add_argument("--seed", type=int, default=int(seed) if seed else secrets.randbelow(1_000_000))
    parser.add_argument("--share", type=int, default=1, help="inject one of this many faults")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--places", nargs="+", choices=PLACES, default=list(PLACES), help="of worlds of the committers")
    parser.add_argument("--world", type=int, help="only this world of the committers")
    parser.add_argument("--mutants", nargs="+", metavar="NAME", help="only these mutants")
    parser.add_argument("--lives", type=int, default=2000, help="number of random lives")
    parser.add_argument("--life", metavar="SEED", help="only the life of this seed, or this script")
    parser.add_argument("--bundle", help="bundle of the jobs on Ray; default: export the smallest model")
    parser.add_argument(
        "--ray-kills", type=int, default=10, help="number of kills of each of actor, worker, raylet, driver"
    )
    parser.add_argument(
        "--training-kills", type=int, default=12, help="number of kills of worker, controller and job of a training"
    )
    parser.add_argument("--ray-documents", type=int, default=30, help="good rows of each file")
    return parser.parse_args()


def _may_mount() -> None:
    """Restart this process as root of a user namespace if it may not mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as folder:
        allowed = libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=64k") == 0
        if allowed:
            libc.umount2(folder.encode(), 2)
    if allowed:
        return
    if os.environ.get("LSR_FAULTS_NAMESPACE"):
        raise SystemExit("cannot mount a tmpfs to simulate a full disk; run as root or allow user namespaces")
    os.environ["LSR_FAULTS_NAMESPACE"] = "1"
    os.execvp("unshare", ["unshare", "-Urm", sys.executable, "-m", "tests.faults", *sys.argv[1:]])


def _export(folder: Path) -> Path:
    from lsr_prod.config import ExportSettings
    from lsr_prod.model import SparseEncoder
    from lsr_prod.model.export import export_bundle
    from quickstart.models import model_folder

    model, bundle = folder / "model", folder / "bundle"
    SparseEncoder.load(model_folder("splade-tiny"), document_max_length=128, query_max_length=64).save(model)
    export_bundle(ExportSettings(model=str(model), output=str(bundle)))
    return bundle


if __name__ == "__main__":
    raise SystemExit(main())
