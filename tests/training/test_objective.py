"""The whole loss against its plain form, and the same on one worker as on many."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lsr_prod.config.objective import ObjectiveSettings
from lsr_prod.training import process_group
from lsr_prod.training.batches import BatchKeys, false_negatives, spread
from lsr_prod.training.kept_terms import keep_terms
from lsr_prod.training.objective import LossTerms, TrainingObjective
from lsr_prod.training.retrieval.gradient import NegativeQueue
from tests.training.gloo import run_workers
from tests.training.objectives_of_tests import OBJECTIVES
from tests.training.plain_loss import PlainKeys, plain_total

V, C, HIDDEN, STEP, STEPS = 30, 3, 12, 2, 10
VOCABULARY = [f"{'Word' if i % 3 else 'word'}{i}" for i in range(V)]
LAYOUTS = ([16, 16, 16, 16], [7, 20, 30, 7], [1, 0, 63, 0])
CASES = [(name, i) for i in range(len(LAYOUTS)) for name in OBJECTIVES if i == 1 or name.startswith("everything")]


@dataclass(frozen=True, slots=True)
class Batch:
    queries: Tensor
    documents: Tensor
    teacher: Tensor
    extra: Tensor
    weights: Tensor
    keys: PlainKeys
    present: Tensor | None = None

    def part(self, start: int, stop: int) -> "Batch":
        documents, keys = self.documents[start * C : stop * C], self.keys
        own = PlainKeys(keys.queries[start:stop], keys.documents[start * C : stop * C], keys.extra, keys.rows)
        present = None if self.present is None else self.present[start:stop]
        teacher = self.teacher[start:stop]
        return Batch(self.queries[start:stop], documents, teacher, self.extra, self.weights, own, present)

    def document_vectors(self, weights: Tensor) -> Tensor:
        """Documents that are present, and zero vectors at the other places."""
        present = None if self.present is None or self.present.all() else self.present
        texts = self.documents if present is None else self.documents[present.flatten()]
        return spread(vectors(texts, weights), present)


def keys_of(n: int, extra: int, *, seed: int = 3) -> PlainKeys:
    """Keys of a batch with equal queries and equal documents, from a training set that has more rows."""
    draw = random.Random(seed)
    queries = [draw.randrange(-n, n) for _ in range(n)]
    documents = [draw.randrange(-2 * n, 2 * n) for _ in range(n * C)]
    others = [(draw.randrange(-n, n), draw.randrange(-2 * n, 2 * n)) for _ in range(3 * n)]
    rows = [*zip(queries, documents[::C], strict=True), *others]
    return PlainKeys(queries, documents, [draw.randrange(-2 * n, 2 * n) for _ in range(extra)], rows)


def batch_keys(plain: PlainKeys) -> BatchKeys:
    """The keys as a worker has them; of the rows of the training set outside the batch, those with its queries."""
    others = plain.rows[len(plain.rows) // 4 :]
    known = [(i, d) for i, query in enumerate(plain.queries) for q, d in others if q == query]
    owners, positives = ([pair[side] for pair in known] for side in (0, 1))
    return BatchKeys(
        *(torch.tensor(list(one), dtype=torch.int64) for one in (plain.queries, plain.documents, owners, positives))
    )


def batch(n: int, dtype: torch.dtype = torch.float32) -> Batch:
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    texts = draw(n, HIDDEN), draw(n * C, HIDDEN), draw(n, C)
    return Batch(*texts, torch.relu(draw(5, V)), 0.2 * draw(V, HIDDEN), keys_of(n, 5))


def incomplete(whole: Batch) -> Batch:
    """Two thirds of the hard negatives are missing, at the last places of a query; of some queries all are."""
    counts = torch.arange(len(whole.queries)) * 2 % 5 % C
    return replace(whole, present=torch.arange(C) <= counts[:, None])


def vectors(texts: Tensor, weights: Tensor) -> Tensor:
    return torch.log1p(torch.relu(texts @ weights.T))


def losses_of(name: str, *, cross_worker: bool = True) -> tuple[ObjectiveSettings, TrainingObjective]:
    objective = ObjectiveSettings.model_validate(OBJECTIVES[name] | {"cross_worker": cross_worker})
    return objective, TrainingObjective(objective, vocabulary=VOCABULARY, steps=STEPS)


@dataclass(frozen=True, slots=True)
class Outcome:
    parts: dict[str, Tensor]
    gradient: Tensor
    state: dict[str, Tensor]


def keys_and_extra(objective: ObjectiveSettings, part: Batch) -> dict[str, Any]:
    keys = {"keys": batch_keys(part.keys)}
    return (
        keys
        if objective.queue is None
        else {**keys, "extra_documents": part.extra, "extra_keys": torch.tensor(part.keys.extra)}
    )


def train_on(name: str, part: Batch, *, cross_worker: bool = True) -> Outcome:
    """A step of a linear model with a rectified output on a worker's part of the batch."""
    objective, loss = losses_of(name, cross_worker=cross_worker)
    weights = part.weights.clone().requires_grad_()
    queries, documents = vectors(part.queries, weights), part.document_vectors(weights)
    loss.regularizers.observe(documents if part.present is None else documents[part.present.flatten()], STEP)
    present = None if part.present is None or part.present.all() else part.present
    terms = loss(
        queries, documents, teacher=part.teacher, step=STEP, present=present, **keys_and_extra(objective, part)
    )
    terms.total.backward()
    return Outcome(terms.parts, weights.grad, loss.regularizers.state())


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing_negatives"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objective_matches_plain_form_in_value_and_gradient(name: str, missing: bool) -> None:
    whole = batch(4, torch.float64)
    if missing:
        whole = incomplete(whole)
    objective, loss = losses_of(name)
    extra = whole.extra if objective.queue is not None else None
    gradients = []
    totals = []
    for plain in (False, True):
        queries = vectors(whole.queries, whole.weights).requires_grad_()
        documents = whole.document_vectors(whole.weights).requires_grad_()
        if plain:
            total = plain_total(
                objective, VOCABULARY, queries, documents, whole.teacher, extra, STEP, STEPS, whole.present, whole.keys
            )
        else:
            loss.regularizers.observe(documents if whole.present is None else documents[whole.present.flatten()], STEP)
            terms = loss(
                queries, documents, teacher=whole.teacher, step=STEP, present=whole.present,
                **keys_and_extra(objective, whole),
            )  # fmt: skip
            total = terms.total
            torch.testing.assert_close(terms.parts["total"], total.detach())
        total.backward()
        totals.append(total.detach())
        # What a rectified weight of 0 gets never reaches the model.
        gradients.append((queries.grad * (queries > 0), documents.grad * (documents > 0)))
    # The factors of document frequencies are float32.
    torch.testing.assert_close(totals[0], totals[1], rtol=1e-6, atol=1e-6)
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


@dataclass(frozen=True, slots=True)
class OfWorker:
    shared: dict[tuple[str, int], Outcome]
    own_negatives: Outcome
    missing: dict[tuple[str, int], Outcome]
    queue: dict[str, Tensor]


def on_every_layout(rank: int) -> OfWorker:
    """Everything in one go: processes are slow to start."""
    whole = batch(64)
    parts = [whole.part(sum(sizes[:rank]), sum(sizes[: rank + 1])) for sizes in LAYOUTS]
    shared = {(name, i): train_on(name, parts[i]) for name, i in CASES}
    lacking = [incomplete(whole).part(sum(sizes[:rank]), sum(sizes[: rank + 1])) for sizes in LAYOUTS]
    missing = {(name, i): train_on(name, lacking[i]) for name, i in CASES}
    queue, documents = NegativeQueue(60, 3, V), vectors(whole.documents, whole.weights)
    keys = torch.tensor(whole.keys.documents)
    for sizes in LAYOUTS:
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        queue.push(process_group.all_rows(documents[own]), process_group.all_rows(keys[own]))
    return OfWorker(shared, train_on("everything", parts[1], cross_worker=False), missing, queue.state())


@pytest.fixture(scope="module")
def on_workers() -> list[OfWorker]:
    return run_workers(on_every_layout, 4)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing_negatives"])
@pytest.mark.parametrize(("name", "layout"), CASES, ids=[f"{name}-{LAYOUTS[i]}" for name, i in CASES])
def test_objective_does_not_depend_on_division_among_workers(
    on_workers: list[OfWorker], name: str, layout: int, missing: bool
) -> None:
    alone = train_on(name, incomplete(batch(64)) if missing else batch(64))
    shared = [(worker.missing if missing else worker.shared)[name, layout] for worker in on_workers]
    torch.testing.assert_close(sum(outcome.gradient for outcome in shared), alone.gradient, rtol=1e-5, atol=1e-5)
    for outcome in shared:
        assert set(outcome.parts) == set(alone.parts)
        for part, value in outcome.parts.items():
            assert torch.equal(value, shared[0].parts[part])
            torch.testing.assert_close(value, alone.parts[part], rtol=1e-5, atol=1e-5)
        assert all(torch.equal(outcome.state[key], alone.state[key]) for key in alone.state)


def test_cross_worker_false_keeps_negatives_local_and_regularizers_global(
    on_workers: list[OfWorker],
) -> None:
    shared, whole = [worker.own_negatives for worker in on_workers], batch(64)
    global_parts = train_on("everything", whole).parts
    for name in ("info_nce", "n_pair", "pruned", "kl", "overlap"):
        expected, start = torch.zeros(()), 0
        for size in LAYOUTS[1]:
            expected += train_on("everything", whole.part(start, start + size)).parts[name] * size / 64
            start += size
        torch.testing.assert_close(shared[0].parts[name], expected, rtol=1e-5, atol=1e-5)
    assert shared[0].parts["info_nce"] < global_parts["info_nce"] - 0.1  # fewer negatives are easier
    for name, value in global_parts.items():
        if "flops" in name or "l1" in name or "cased" in name:
            torch.testing.assert_close(shared[0].parts[name], value, rtol=1e-5, atol=1e-5)


def test_queue_is_equal_on_all_workers(on_workers: list[OfWorker]) -> None:
    alone, whole = NegativeQueue(60, 3, V), batch(64)
    for _ in LAYOUTS:
        alone.push(vectors(whole.documents, whole.weights)[:64], torch.tensor(whole.keys.documents[:64]))
    for worker in on_workers:
        assert all(torch.equal(worker.queue[key], value) for key, value in alone.state().items())


def evaluate(name: str, *, step: int = STEP, **changes: Tensor) -> LossTerms:
    whole = batch(4)
    _, loss = losses_of(name)
    queries = changes.get("queries", vectors(whole.queries, whole.weights))
    documents = changes.get("documents", vectors(whole.documents, whole.weights))
    return loss(queries, documents, teacher=whole.teacher, step=step)


def test_total_is_weighted_sum_of_parts() -> None:
    objective, _ = losses_of("everything")
    assert objective.pruning is not None
    assert objective.overlap is not None
    parts = dict(evaluate("everything").parts)
    total = parts.pop("total") - parts.pop("pruned") * objective.pruning.weight
    total -= parts.pop("overlap") * objective.overlap.weight
    weights = {name.removesuffix("_weight"): parts.pop(name) for name in list(parts) if name.endswith("_weight")}
    assert weights.keys() == {
        "flops_query",
        "flops_document",
        "joint_flops",
        "l1_query",
        "l1_document",
        "df_flops_query",
        "df_flops_document",
        "cased_query",
        "cased_document",
        "flops_6_document",
    }
    torch.testing.assert_close(total, sum(value * weights.get(name, 1.0) for name, value in parts.items()))
    torch.testing.assert_close(weights["flops_document"], torch.tensor(0.2 * (2 / 3) ** 2))


def test_extra_documents_may_be_kept_terms() -> None:
    whole = batch(4)
    _, loss = losses_of("info_nce_queue")
    queries, documents = vectors(whole.queries, whole.weights), vectors(whole.documents, whole.weights)
    kept = keep_terms(whole.extra, 4)
    totals = [
        loss(queries, documents, teacher=None, step=0, extra_documents=extra).total for extra in (kept, kept.dense())
    ]
    torch.testing.assert_close(*totals)
    assert totals[0] > loss(queries, documents, teacher=None, step=0).total


def test_objective_sums_in_float32_under_autocast() -> None:
    whole = batch(4)
    queries, documents = vectors(whole.queries, whole.weights), vectors(whole.documents, whole.weights)
    expected = evaluate("everything_masked", queries=queries, documents=documents).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(evaluate("everything_masked", queries=queries, documents=documents).total, expected)
    halves = evaluate("everything_masked", queries=queries.bfloat16(), documents=documents.bfloat16())
    assert halves.total.dtype == torch.float32
    torch.testing.assert_close(halves.total, expected, rtol=0.02, atol=0.02)


def test_zero_vectors_have_finite_gradient() -> None:
    queries, documents = torch.zeros(4, V, requires_grad=True), torch.zeros(4 * C, V, requires_grad=True)
    evaluate("everything", queries=queries, documents=documents).total.backward()
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(documents.grad).all()


def test_state_contains_document_frequencies() -> None:
    _, first = losses_of("everything")
    _, second = losses_of("everything")
    documents = vectors(batch(8).documents, batch(8).weights)
    for step in range(3):
        first.regularizers.observe(documents, step)
    second.regularizers.load_state(first.regularizers.state())
    assert first.regularizers.state()
    restored = second.regularizers.state()
    assert all(torch.equal(value, restored[key]) for key, value in first.regularizers.state().items())
    assert losses_of("info_nce")[1].regularizers.state() == {}


def test_objective_rejects_mismatched_shapes() -> None:
    with pytest.raises(ValueError, match="7 documents do not divide among 4 queries"):
        evaluate("info_nce", documents=torch.rand(7, V))
    whole = batch(4)
    _, loss = losses_of("kl")
    with pytest.raises(ValueError, match="kl needs the teacher's scores"):
        loss(vectors(whole.queries, whole.weights), vectors(whole.documents, whole.weights), teacher=None, step=0)


def test_objective_allocates_no_tensor_larger_than_documents() -> None:
    """The largest tensor of a step, forward and backward, is as large as the documents."""
    widest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal widest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and result.untyped_storage().nbytes() > widest:
                widest = result.untyped_storage().nbytes()
            return result

    whole = batch(32)
    _, loss = losses_of("everything")
    queries = vectors(whole.queries, whole.weights).requires_grad_()
    documents = vectors(whole.documents, whole.weights).requires_grad_()
    with Watch():
        loss(queries, documents, teacher=whole.teacher, step=STEP).total.backward()
    # Scores of 32 queries with 96 documents are larger than 96 x 30 weights; ids are 8 bytes.
    assert widest <= 8 * max(32 * 32 * C, 32 * C * V)


@given(st.integers(1, 7), st.integers(0, 4), st.integers(0, 10_000))
def test_false_negatives_are_documents_of_rows_with_the_same_query(n: int, extra: int, seed: int) -> None:
    plain = keys_of(n, extra, seed=seed)
    more = torch.tensor(plain.extra, dtype=torch.int64)
    found = false_negatives(batch_keys(plain), more if extra else None, process_group.Shares([n], [n * C]))
    assert found.dtype == torch.bool
    assert found.tolist() == [
        [not plain.is_negative(i, document) and j != i * C for j, document in enumerate(plain.documents + plain.extra)]
        for i in range(n)
    ]


@pytest.mark.parametrize("name", ["info_nce", "info_nce_cosine", "info_nce_queue", "n_pair", "n_pair_both"])
def test_batch_of_equal_positives_has_no_negatives(name: str) -> None:
    objective, loss = losses_of(name)
    whole = batch(4)
    queries = vectors(whole.queries, whole.weights).requires_grad_()
    equal = BatchKeys(torch.arange(4), torch.full((4,), 9), *torch.empty(2, 0, dtype=torch.int64))
    extra = {} if objective.queue is None else {"extra_documents": whole.extra, "extra_keys": torch.full((5,), 9)}
    documents = vectors(whole.documents[::C], whole.weights)
    terms = loss(queries, documents, teacher=None, step=0, keys=equal, **extra)
    terms.total.backward()
    assert terms.total.item() == 0
    assert not queries.grad.any()


def test_mask_false_negatives_false_keeps_them() -> None:
    whole = batch(4)
    objective, loss = losses_of("info_nce_queue")
    kept = objective.model_copy(update={"mask_false_negatives": False})
    unmasked = TrainingObjective(kept, vocabulary=VOCABULARY, steps=STEPS)
    vectors_of_batch = vectors(whole.queries, whole.weights), vectors(whole.documents, whole.weights)

    def total(one: TrainingObjective, **inputs: Any) -> Tensor:
        return one(*vectors_of_batch, teacher=None, step=0, extra_documents=whole.extra, **inputs).total

    keys = {"keys": batch_keys(whole.keys), "extra_keys": torch.tensor(whole.keys.extra)}
    assert torch.equal(total(unmasked, **keys), total(loss))
    assert total(loss, **keys) < total(loss)
    with pytest.raises(ValueError, match="keys of the batch and of the extra documents"):
        total(loss, keys=keys["keys"])
