"""ESPLADE (papers/esplade-pretraining): words as outputs, their pre-training, and joint FLOPS."""

from typing import Any

from benchmarks.results.claims import Claim, Family
from benchmarks.results.material import Material
from benchmarks.results.runs import Chain
from benchmarks.results.stages import finetune

LEVELS = ((0, 0), (7, 20), (5, 20), (5, 10))
PRUNED = (7, 20)  # of the threshold curves
THRESHOLDS = (0.0, 0.2, 0.4, 0.6)
JOINT = {"regularizer": "joint_flops", "joint": 0.1, "estimator": "off_diagonal", "ramp": "quadratic"}
FLOPS = {"regularizer": "flops", "query": 0.02, "document": 0.02, "ramp": "quadratic"}


def family(material: Material) -> Family:
    """The uncased stand-in with its word pieces, and with the words of the corpus."""
    words: dict[str, Any] = {
        "stage": "expand_vocabulary", "data": {"paths": [str(material.file("texts"))], "kind": "texts"},
        "size": 15_000, "min_count": 3,
    }  # fmt: skip
    emlm: dict[str, Any] = {
        "stage": "pretrain_emlm", "data": {"paths": ["none"], "kind": "texts"}, "batch": {"texts": 48}, "steps": 300,
        "max_length": 48, "seed": 0, "dropout": 0.0, "scale": {"precision": "bf16"},
        "optimizer": {"learning_rate": 3e-4, "warmup_share": 0.1},
    }  # fmt: skip

    def chain(*stages: Any) -> Chain:
        return Chain("uncased", stages, LEVELS, THRESHOLDS)

    rows = {
        "word pieces, untrained": chain(),
        "words, untrained": chain(words),
        "word pieces, FLOPS": chain(finetune([FLOPS])),
        "word pieces, joint FLOPS": chain(finetune([JOINT])),
        "words, joint FLOPS": chain(words, finetune([JOINT])),
        "words, EMLM, FLOPS": chain(words, emlm, finetune([FLOPS])),
        "words, EMLM, joint FLOPS": chain(words, emlm, finetune([JOINT])),
        "words, four times the EMLM, joint FLOPS": chain(words, {**emlm, "steps": 1200}, finetune([JOINT])),
        "random words, joint FLOPS": chain({**words, "initialization": "random"}, finetune([JOINT])),
    }
    words, pieces = "words, EMLM, joint FLOPS", "word pieces, joint FLOPS"
    claims = [
        Claim("words are ahead of word pieces", words, pieces, why=WORDS),
        Claim("words are ahead of word pieces at equal FLOPS", words, pieces, equal_flops=True, why=WORDS),
        Claim("words are ahead of word pieces pruned to (5, 10)", words, pieces, level=(5, 10), why=TEN_WORDS),
        Claim("words are ahead of word pieces pruned to (5, 10), at equal FLOPS", words, pieces, level=(5, 10),
              equal_flops=True, why=WORDS),
        Claim("EMLM pre-training helps", words, "words, joint FLOPS", why=SIZES),
        Claim("four times the EMLM helps more", "words, four times the EMLM, joint FLOPS", words),
        Claim("mean rows are ahead of random rows (rand-vocab)", "words, joint FLOPS", "random words, joint FLOPS"),
        Claim("joint FLOPS is ahead of FLOPS at equal cost", words, "words, EMLM, FLOPS", equal_flops=True,
              why=WEIGHTS),
        Claim("joint FLOPS is ahead of FLOPS pruned to (5, 10), at equal cost", words, "words, EMLM, FLOPS",
              level=(5, 10), equal_flops=True, why=WEIGHTS),
    ]  # fmt: skip
    return Family(
        "expansion",
        "Expanded vocabularies",
        TEXT,
        rows,
        claims,
        frozenset({"word pieces, untrained", "words, untrained"}),
    )


WORDS = """26 % of the queries have a word outside of U (it occurs less than three times; most are names of
commands); they lose .062 with all terms, the others .032. EMLM saw 14,400 texts, the paper's 614 million; the rows
on EMLM say in which direction more of it points""".replace("\n", " ")
TEN_WORDS = """ten words cost a twentieth of the FLOPS of ten word pieces, of which one is in nearly every page; the
next row compares them at equal FLOPS""".replace("\n", " ")
SIZES = """without EMLM, with 300 and with 1,200 steps RR@10 is .497, .486 and .498; with the stand-in of 500 steps 300
of EMLM were ahead by .010 (p .13)""".replace("\n", " ")
WEIGHTS = "the weights (.1 and .02) were not chosen for equal cost, so the row behind may be allowed more FLOPS"
TEXT = """Stand-in: the uncased BERT. U: the words of the texts that occur at least three times. EMLM: 300 steps of 48
texts, in one row 1,200, in place of 600,000 of 1,024. "At equal FLOPS": the row ahead is pruned to the one of four
levels, from (5, 10) to all terms, whose FLOPS come closest to those of the other without being above them; it is
chosen by cost only. Random words have the figures of a collapsed model: their rows are unrelated to anything, and 60
steps at the common learning rate only learn to activate the same terms for every text."""
