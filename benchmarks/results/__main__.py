"""Show, or fail to show, the claims of the five papers on stand-in models, and write ``docs/results.md``.

    python -m benchmarks.results SHARED_DATA [--work FOLDER] [--families NAME ...] [--seeds 3] [--quick]

Runs are kept in the work folder (default: a per-user cache) under a digest of everything that decides them, so an
interrupted program resumes, and the page is written again in minutes. The page keeps its sections of families that are
not asked for. All runs take more than four hours of two cores with avx512_bf16; other processors emulate bf16, for
days. Prints ``RESULT {json}``: verdicts by family.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.results import (
    casing,
    causal,
    expansion,
    inference_free,
    korean,
    precision,
    pruning,
    rescaling,
    transfer,
)
from benchmarks.results.claims import Family, verdict
from benchmarks.results.material import Material
from benchmarks.results.page import renewed, threshold_rows, write_page
from benchmarks.results.picture import casing_pictures
from benchmarks.results.runs import Outcome, Workshop
from benchmarks.results.stages import STEPS
from benchmarks.results.tables import diagnostics
from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings
from lsr_prod.jobs.terminal.shell import print_result

CURVES = "Overlap thresholds (J.3): share of the terms of a query, pruned to (7, 20), that a document has to hold:"
PAGE = Path(__file__).parents[2] / "docs" / "results.md"
FAMILIES: dict[str, Callable[[Material], Family]] = {
    "casing": casing.family,
    "transfer": transfer.family,
    "causal": causal.family,
    "expansion": expansion.family,
    "rescaling": rescaling.family,
    "precision": precision.family,
}
SECTIONS: dict[str, Callable[[Material, int], str]] = {
    "pruning": pruning.section,
    "inference-free": inference_free.section,
    "korean": korean.section,
}


def main(argv: Sequence[str]) -> int:
    """Run what is missing, write the page and print."""
    names = [*FAMILIES, *SECTIONS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder with tldr_en/, wikitext2/, scifact/ …")
    parser.add_argument("--work", type=Path, default=None, help="folder that keeps models and figures")
    parser.add_argument("--families", nargs="+", choices=names, default=names, help="to run; default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--quick", action="store_true", help="untrained stand-ins, few queries: does it work at all?")
    asked = parser.parse_args(argv)
    work = asked.work or Path(os.environ.get("LSR_PROD_RESULTS") or Path.home() / ".cache" / "lsr_prod" / "results")
    work.mkdir(parents=True, exist_ok=True)
    material = Material(asked.data, work.absolute(), asked.quick)
    with ray_session(RaySettings(num_cpus=2)):
        families = [FAMILIES[name](material) for name in asked.families if name in FAMILIES]
        outcomes = {family.name: _outcomes(family, Workshop(material), asked.seeds) for family in families}
        sections = [SECTIONS[name](material, asked.seeds) for name in asked.families if name in SECTIONS]
        bm25 = {name: float(material.bm25(one).mean()) for name, one in material.collections.items()}
    verdicts = {
        family.name: [verdict(claim, outcomes[family.name], material) for claim in family.claims] for family in families
    }
    drawn = asked.page.parent / "diagrams" / "casing.svg"
    extras = {}
    for family in families:
        if family.name == "expansion":
            curves = threshold_rows(outcomes[family.name], expansion.THRESHOLDS, expansion.PRUNED)
            extras[family.name] = f"{CURVES}\n\n{curves}\n\n{diagnostics(family, Workshop(material))}"
        elif family.name == "causal":
            extras[family.name] = causal.curves(family, Workshop(material), drawn.with_name("causal.svg"))
        elif family.name == "casing":
            extras[family.name] = casing_pictures(family, Workshop(material), drawn)
    header = {
        "steps": STEPS, "pairs": len(material.pairs), "queries": len(material.collections["tldr"].queries),
        "documents": len(material.collections["tldr"].documents), "bm25": bm25["tldr"], "bm25_lower": bm25["lower"],
    }  # fmt: skip
    before = asked.page.read_text(encoding="utf-8") if asked.page.exists() else ""
    page = renewed(before, write_page(families, outcomes, verdicts, extras, header, sections))
    asked.page.write_text(page, encoding="utf-8")
    print_result({name: {one.claim.text: one.word for one in found} for name, found in verdicts.items()})
    return 0


def _outcomes(family: Family, workshop: Workshop, seeds: int) -> dict[str, list[Outcome]]:
    """All runs of a family, seed by seed, so that an interrupted program has whole comparisons."""
    found: dict[str, list[Outcome]] = {label: [] for label in family.rows}
    for seed in range(seeds):
        for label, chain in family.rows.items():
            if seed in family.seeds(label, seeds):
                start = time.perf_counter()
                one = workshop.outcome(chain, seed)
                found[label].append(one)
                if (spent := time.perf_counter() - start) > 1:
                    sys.stderr.write(f"{family.name}: {label}, seed {seed}: {one.values().mean():.3f}, {spent:.0f} s\n")
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
