"""Casing (papers/casing): what a cased vocabulary costs, and what recovers it."""

from benchmarks.results.claims import Claim, Family
from benchmarks.results.material import Material
from benchmarks.results.runs import Chain
from benchmarks.results.stages import finetune

FLOPS = {"regularizer": "flops", "query": 0.02, "document": 0.02, "ramp": "quadratic"}


def family(_: Material) -> Family:
    """The rows of tables 1 and 2 of the paper."""
    cased = {"regularizer": "cased", "query": 0.008, "document": 0.01, "ramp": "quadratic"}
    rows = {
        "cased, untrained": Chain("cased", ()),
        "cased": Chain("cased", (finetune(),)),
        "cased, lowercased texts": Chain("cased", ({"stage": "set_encoder", "casing": "lowercase"}, finetune())),
        "cased, uncased outputs": Chain("cased", ({"stage": "set_encoder", "output_casing": "uncased"}, finetune())),
        "cased, regularizer": Chain("cased", (finetune([FLOPS, cased]),)),
        "uncased, untrained": Chain("uncased", ()),
        "uncased": Chain("uncased", (finetune(),)),
    }
    low = "with queries in lower case"
    claims = [
        Claim(f"an uncased model is ahead of a cased one {low}", "uncased", "cased", "lower"),
        Claim(f"lowercased texts recover a cased model {low}", "cased, lowercased texts", "cased", "lower"),
        Claim(f"uncased outputs recover a cased model {low}", "cased, uncased outputs", "cased", "lower", why=COPIES),
        Claim(
            f"the cased regularizer recovers a cased model {low}", "cased, regularizer", "cased", "lower", why=COPIES
        ),
    ]
    return Family("casing", "Casing", TEXT, rows, claims, frozenset({"cased, untrained", "uncased, untrained"}))


COPIES = """no cased model is at hand, so the upper-case rows of the stand-in began as the mean of the rows of the
lower-case pieces, and 5,000 steps have not parted them: the median cosine of a row and of its lower-case form is .87
(of random rows .05; 3,540 words). Both forms score alike, so merging them adds little, and pushing one down pushes down
the other, too.""".replace("\n", " ")
TEXT = """Stand-ins: the cased and the uncased BERT. The paper trains on MS MARCO, whose queries are in lower case and
whose passages are not; the queries of tldr are sentences, so the claims are read off the same queries in lower
case. The weights of the regularizer have the authors' proportion to FLOPS (0.2 to 0.5 and 0.4), because MarginMSE and
InfoNCE differ in size."""
