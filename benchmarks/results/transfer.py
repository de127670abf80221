"""Vocabulary transfer (papers/vocabulary-transfer): initialization, adaptation, bias, calibration, the head alone."""

from typing import Any

from benchmarks.results.claims import Claim, Family
from benchmarks.results.material import Material
from benchmarks.results.runs import Chain
from benchmarks.results.stages import adapt_mlm, calibrate, finetune
from quickstart.models import model_folder

STRATEGIES = ("semantic", "subtoken", "mean", "random_new")
RATES = (0.001, 0.005, 0.1, 0.4)


def family(material: Material) -> Family:
    """The cased stand-in on the vocabulary of bert-base-uncased."""
    teacher = str(model_folder("splade-tiny"))

    def moved(strategy: str, **changes: Any) -> dict[str, Any]:
        stage = {"stage": "transfer_vocabulary", "target": teacher, "initialization": strategy, "bias": "target"}
        return stage | {"seed": 0} | changes

    rows = {"cased, no transfer": Chain("cased", (finetune(),))}
    for strategy in STRATEGIES:
        rows[f"{strategy}, adapted"] = Chain("cased", (moved(strategy), adapt_mlm(), finetune()))
    rows["semantic, direct"] = Chain("cased", (moved("semantic"), finetune()))
    rows["semantic, adapted, bias not matched"] = Chain(
        "cased", (moved("semantic", bias="rows"), adapt_mlm(), finetune())
    )
    for rate in RATES:
        stages = (moved("semantic"), adapt_mlm(), calibrate(rate, material), finetune())
        rows[f"semantic, adapted, APC {rate:.1%}"] = Chain("cased", stages)
    head = moved("semantic", parts="head")
    distil = {
        "stage": "distil_head", "teacher": teacher, "data": {"paths": ["none"], "kind": "texts"},
        "batch": {"texts": 32}, "steps": 100, "max_length": 48, "seed": 0, "dropout": 0.0,
        "optimizer": {"learning_rate": 1e-3, "schedule": "cosine", "warmup_share": 0.1}, "scale": {"precision": "bf16"},
    }  # fmt: skip
    rows["head only"] = Chain("cased", (head, finetune()))
    rows["head only, teacher"] = Chain("cased", (head, distil, finetune()))
    lowest, highest = (f"semantic, adapted, APC {rate:.1%}" for rate in (RATES[0], RATES[-1]))
    claims = [
        Claim("semantic is ahead of subtoken", "semantic, adapted", "subtoken, adapted", why=SHARE),
        Claim("subtoken is ahead of mean", "subtoken, adapted", "mean, adapted"),
        Claim("mean is ahead of random", "mean, adapted", "random_new, adapted", why=MEAN),
        Claim("semantic is ahead of random", "semantic, adapted", "random_new, adapted", why=SHARE),
        Claim("adaptation helps", "semantic, adapted", "semantic, direct", why=SHORT),
        Claim("matching the bias helps (eq. 10)", "semantic, adapted", "semantic, adapted, bias not matched", why=BIAS),
        Claim("calibration to 0.1 %, which lowers the bias, helps (APC)", lowest, "semantic, adapted", why=SPARSE),
        Claim("calibration to 40 % helps (APC)", highest, "semantic, adapted", why=DENSE),
        Claim("the teacher helps the head alone (SAP)", "head only, teacher", "head only", why=TEACHER),
        Claim(
            "the transfer beats the cased vocabulary, queries in lower case",
            "semantic, adapted",
            "cased, no transfer",
            "lower",
        ),
    ]
    return Family("transfer", "Vocabulary transfer", TEXT, rows, claims)


SHARE = """of 30,522 rows 11,931 are new, but only 6.2 % of the tokens of the queries are, so an initialization
decides little""".replace("\n", " ")
MEAN = """all new rows are one vector at the start, and their mean cosine is still .98 after the adaptation (of random
rows .01), so new terms are active together; the paper adapts for 20,000 steps""".replace("\n", " ")
SHORT = "the adaptation is 100 steps of 32 texts, and 6.2 % of the tokens of the queries are new"
BIAS = """the target bias is that of a small SPLADE, trained for sparse vectors, where the paper's is that of a language
model""".replace("\n", " ")
TEACHER = "the teacher (RR@10 .475, without any training here) is hardly better than what 60 steps give without it"
SPARSE = """2.7 are taken from every bias (first seed; at 0.5 % it is .1, so that is the rate of this stand-in), and
60 steps do not bring back the terms that this removes: FLOPS are half of those without it""".replace("\n", " ")
DENSE = """the paper lowers biases of models that are too active; this stand-in has far fewer terms above 0, so 40 %
raises every bias. InfoNCE then begins at 224 in place of 2.7 (first seed), and FLOPS, which grow with the square of the
activity, leave five terms of a text after 60 steps (the paper's ramp takes 50,000)""".replace("\n", " ")
TEXT = """From the cased stand-in to the vocabulary of bert-base-uncased; target embeddings, bias and teacher are
those of `splade-tiny` (2 x 128). Adaptation: 100 steps of 32 texts in place of 20,000 of 2,048."""
