from lsr_prod.config import Deployment
from lsr_prod_contrib.sweeps.patches import evaluate_patch, limit_patch, search_options

PATCH = {"index": {"dk": 8}, "evaluate": {"qk": 4}}
INDEX = {"table": "t", "bundle": "b", "output": "i"}


def test_patch_is_limited_to_given_sections() -> None:
    assert limit_patch(PATCH, Deployment()) == PATCH
    assert limit_patch(PATCH, Deployment.model_validate({"index": INDEX})) == {"index": {"dk": 8}}


def test_search_options_name_the_words_only_for_hybrids() -> None:
    assert search_options(qk=None, threshold=0.4, hybrid_weight=None) == {"qk": None, "overlap_threshold": 0.4}
    found = search_options(qk=8, threshold=0.0, hybrid_weight=2.0, depth=200)
    assert found["hybrid"] == {"fusion": "rrf", "words": 2.0, "depth": 200}
    assert search_options(qk=8, threshold=0.0, hybrid_weight=2.0)["hybrid"] == {"fusion": "sum", "words": 2.0}


def test_evaluation_patch_takes_the_form_that_the_deployment_uses() -> None:
    judged = {"index": "i", "queries": "q", "qrels": "r"}
    search = search_options(qk=8, threshold=0.4, hybrid_weight=2.0)
    plain = Deployment.model_validate({"evaluate": {**judged, "thresholds": [0.0]}})
    without = search_options(qk=8, threshold=0.4, hybrid_weight=None)
    assert evaluate_patch(Deployment(), without) == evaluate_patch(plain, search) == {"qk": 8, "thresholds": [0.4]}
    listed = Deployment.model_validate({"evaluate": {**judged, "systems": [{"kind": "bm25"}]}})
    unset = Deployment.model_validate({"evaluate": judged})
    for given, hybrid_weight, kind in (
        (listed, None, "sparse"),
        (listed, 2.0, "hybrid"),
        (unset, 2.0, "hybrid"),
        (Deployment(), 2.0, "hybrid"),
    ):
        options = search_options(qk=8, threshold=0.4, hybrid_weight=hybrid_weight, depth=200)
        fields = evaluate_patch(given, options)
        patched = Deployment.model_validate({"evaluate": {**judged, **fields}}).evaluate
        assert patched is not None
        assert patched.systems is not None
        chosen = patched.systems[1]
        assert (chosen.kind, chosen.qk, chosen.overlap_threshold) == (kind, 8, 0.4)  # type: ignore[union-attr]
        assert kind == "sparse" or (chosen.fusion, chosen.words) == ("rrf", 2.0)  # type: ignore[union-attr]


def test_patch_replaces_a_baseline_that_it_removes() -> None:
    judged = {"index": "i", "queries": "q", "qrels": "r"}
    systems = [{"kind": "sparse", "name": "terms"}, {"kind": "hybrid"}]
    given = Deployment.model_validate({"evaluate": {**judged, "systems": systems, "baseline": "terms"}})
    fields = evaluate_patch(given, search_options(qk=8, threshold=0.4, hybrid_weight=2.0))
    patched = Deployment.model_validate({"evaluate": {**judged, "baseline": "terms", "qk": 32, **fields}}).evaluate
    assert patched is not None
    assert (patched.baseline, patched.qk) == (None, 8)
