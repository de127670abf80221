"""ESPLADE in Korean (papers/esplade-pretraining), against BM25 and against its own vocabulary without any training."""

from benchmarks.results.claims import Claim, Verdict
from benchmarks.results.material import Material
from benchmarks.results.page import claims, table
from benchmarks.train.held_out import MEASURES, Judged
from benchmarks.train.korean import experiment

STEPS = (100, 100, 60)  # of MLM, EMLM and fine-tuning


def section(material: Material, seeds: int) -> str:
    """Train, publish and measure what is missing; the section in Markdown."""
    steps, runs = ((3, 3, 3), 1) if material.quick else (STEPS, seeds)
    words, found = experiment(material.data, material.work / "korean", steps, runs)
    text = TEXT.format(
        words=words, mlm=steps[0], emlm=steps[1], steps=steps[2], questions=len(found.groups),
        documents=found.documents,
    )  # fmt: skip
    head = ["system", *MEASURES, "RR@10 of the seeds"]
    systems = (
        [
            one.name, *(f"{one.means[name]:.4f}" for name in MEASURES),
            " ".join(f"{mean:.3f}" for mean in one.seeds) if len(one.seeds) > 1 else "",
        ]
        for one in found.systems.values()
    )  # fmt: skip
    return "\n\n".join([text, table(head, systems), claims(verdicts(found))])


def verdicts(found: Judged) -> list[Verdict]:
    """Training against no training, and the trained model against BM25."""
    asked = [
        Claim("calibration alone is ahead of the bias as it is", "calibrated", "untrained"),
        Claim("training is ahead of calibration alone", "trained", "calibrated", why=SAME_WORDS),
        Claim("training helps the hybrid", "trained, hybrid", "calibrated, hybrid"),
        Claim("the trained model is ahead of BM25", "trained", "bm25", why=UNWEIGHTED),
        Claim("the hybrid of the trained model and BM25 is ahead of BM25", "trained, hybrid", "bm25"),
    ]
    return [Verdict(one, found.compare(one.better, one.worse)) for one in asked]


SAME_WORDS = (
    "the head is the identity, so calibration alone gives each text its own words; 60 steps from random weights add "
    "related words, which raises R@100 (table), but hardly change which document comes first"
)
UNWEIGHTED = (
    "BM25 weighs a word by its rarity, 60 steps of 32 pairs from random weights do not learn that; and U has whole "
    "words: Korean words carry particles, so a question and its paragraph share pieces (BM25 over word pieces is the "
    "best system) more often than words"
)
TEXT = """## ESPLADE in Korean

A BERT of 2 x 256 from random weights whose head is the identity, U of {words:,} words, {mlm} steps of MLM, {emlm} of
EMLM and {steps} of fine-tuning; {questions:,} held-out questions of KorQuAD over {documents:,} paragraphs and pages.
"untrained" has the same words as outputs and no training at all; "calibrated" is the same with a bias that leaves 0.5 %
of the outputs above zero, so that a text is mostly its own words: its figures are what identity alone gives. Published
by the jobs and searched by `Searcher`: `benchmarks/train/korean.py`."""
