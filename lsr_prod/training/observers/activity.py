"""Sparsity of vectors in training: active terms, cost of retrieval, and dead terms."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lsr_prod import errors, logs
from lsr_prod.config.language import WatchSettings
from lsr_prod.training.losses.ranking import CONTRASTIVE
from lsr_prod.training.process_group import largest_of_workers, sum_of_workers

log = logs.get_log(__name__)

_ROWS = 256  # rows per slice: a mask of the whole batch would need a quarter of its memory


def measure_activity(queries: torch.Tensor, documents: torch.Tensor) -> dict[str, float]:
    """Return figures of the global batch, equal on all workers; a collective operation of all workers.

    - ``l0_<kind>``: mean number of active terms per text;
    - ``activation_rate_<kind>``: share of (text, term) pairs above 0;
    - ``empty_<kind>``: share of texts without active terms;
    - ``flops``: sum_t p_q(t) p_d(t), with p the share of texts in which t is active: the cost of retrieval
      (papers/esplade-pretraining, eq. 1) with this batch as collection;
    - ``cosine_<kind>``: mean cosine of all pairs of texts that are not empty; 0 without a pair.
    """
    counts = torch.zeros(2, queries.shape[1], dtype=torch.float64, device=queries.device)
    directions = torch.zeros_like(counts)  # sums of vectors of length 1
    empty = torch.zeros(2, dtype=torch.float64, device=queries.device)
    for place, vectors in enumerate((queries, documents)):
        for rows in torch.split(vectors.detach(), _ROWS):
            counts[place] += rows.sign().sum(dim=0, dtype=torch.float32)  # a tenth of the time of rows > 0
            lengths = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float32)
            directions[place] += torch.where(lengths > 0, 1 / lengths, 0) @ rows.float()
            empty[place] += (lengths == 0).sum()
    texts = torch.tensor([len(queries), len(documents)], dtype=torch.float64, device=queries.device)
    # [4V + 4]: one collective operation for all figures
    total = sum_of_workers(torch.cat([counts.flatten(), directions.flatten(), texts, empty]))
    V = queries.shape[1]
    counts, directions, numbers = (part.view(2, -1) for part in torch.split(total, [2 * V, 2 * V, 4]))
    texts, empty = numbers
    shares = counts / texts.clamp(min=1)[:, None]
    figures = {"flops": float(shares[0] @ shares[1])}
    for i, kind in enumerate(("query", "document")):
        figures[f"l0_{kind}"] = float(shares[i].sum())
        figures[f"activation_rate_{kind}"] = float(shares[i].mean())
        figures[f"empty_{kind}"] = float(empty[i] / texts[i].clamp(min=1))
        figures[f"cosine_{kind}"] = _mean_cosine(directions[i], float(texts[i] - empty[i]))
    return figures


def _mean_cosine(directions: torch.Tensor, texts: float) -> float:
    """Return the mean cosine of pairs from the sum of the unit vectors: |sum|^2 = texts + the sum over all pairs."""
    if texts < 2:
        return 0.0
    return float((directions @ directions - texts) / (texts * (texts - 1)))


class DeadTerms:
    """Counter of the terms that no document of the last steps activated; part of a checkpoint.

    Observation is local to a worker; only reading combines the workers.
    """

    def __init__(self, vocabulary_size: int, *, window: int, device: torch.device | str = "cpu") -> None:
        self._window = window
        self._last = torch.full((vocabulary_size,), -1, dtype=torch.int64, device=device)

    def observe(self, vectors: torch.Tensor, step: int) -> None:
        """Record the active terms of a step."""
        if len(vectors):
            self._last[vectors.detach().amax(dim=0) > 0] = step

    def count(self, step: int) -> int | None:
        """Return the number of terms that no text activated in the last ``window`` steps; None before so many.

        A collective operation of all workers.
        """
        if step + 1 < self._window:
            return None
        return int((largest_of_workers(self._last) <= step - self._window).sum())

    def state(self) -> dict[str, torch.Tensor]:
        """Return ``last_active`` for a checkpoint: the last step at which a term was active, -1 for never.

        Equal on all workers; a collective operation of all workers.
        """
        return {"last_active": largest_of_workers(self._last).cpu().clone()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore a checkpoint, on any number of workers."""
        self._last.copy_(state["last_active"])


_FULL = 10  # times the target
_EQUAL = 0.99  # mean cosine of pairs, together with a loss near chance
_CHANCE = 0.05  # relative distance of a loss from chance up to which it is near
_IDENTICAL = 0.9999  # mean cosine of pairs, if chance is unknown
_VANISHED = 0.1  # share of the most active terms so far, together with a loss near chance
_HIGHEST = "highest_l0_"  # prefix of names in the state


class CollapseGuard:
    """Check of every report for collapse; part of a checkpoint.

    A loss that is not finite ends the run at once. Empty or full vectors are logged when they first occur, and end the
    run after ``watch.patience`` consecutive reports: an encoder can recover from such a state early in its ramps.

    The vectors are equal if the mean cosine of pairs of queries, or of documents, is .99 or more while the contrastive
    loss is within 5 % of chance. Both are normal for an untrained encoder, so the reports count from the end of the
    warm-up of the learning rate, and the symptom is logged after half of the patience. Without a contrastive loss, the
    level of chance is unknown, and the mean cosine has to be .9999.

    The vectors vanish if queries or documents keep at most a tenth of the active terms that they had, while the
    contrastive loss is within 5 % of chance. A decoder can recover from it after some hundred steps.
    """

    def __init__(self, settings: WatchSettings, ramps_end: int, warmup_end: int = 0) -> None:
        self._settings = settings
        self._ramps_end, self._warmup_end = ramps_end, warmup_end
        self._streaks: dict[str, int] = {}
        self._highest: dict[str, int] = {}  # rounded active terms per text, by kind

    def check(self, step: int, values: Mapping[str, float | None]) -> None:
        """Check a report."""
        check_numbers(step, values)
        found = dict(self._symptoms(step, values))
        self._streaks = {name: self._streaks.get(name, 0) + 1 for name in found}
        for name, (sentence, remedy) in found.items():
            seen = self._streaks[name]
            if seen >= self._settings.patience:
                raise errors.TrainingCollapsedError(f"step {step}: {sentence} in {seen} consecutive reports; {remedy}")
            if seen == (max(1, self._settings.patience // 2) if name.startswith("equal_") else 1):
                fields = {"step": step, "symptom": name, "ends_after_reports": self._settings.patience}
                log.warning("possible collapse: %s; %s", sentence, remedy, extra={"fields": fields})

    def _symptoms(self, step: int, values: Mapping[str, float | None]) -> Iterator[tuple[str, tuple[str, str]]]:
        for kind, plural in (("document", "documents"), ("query", "queries")):
            if values.get(f"l0_{kind}") == 0:
                sentence = f"all {plural} have 0 active terms"
                yield f"empty_{kind}", (sentence, "lower the regularizers or the learning rate, or lengthen the ramps")
        target, l0 = self._settings.l0_target, values.get("l0_document")
        if target is not None and l0 is not None and step >= self._ramps_end and l0 > _FULL * target:
            sentence = f"documents have {l0:.0f} active terms, more than {_FULL} times watch.l0_target ({target})"
            yield "full_document", (sentence, "raise the document regularizer, or lower the learning rate")

        yield from self._vanishing_vectors(values)
        if step >= self._warmup_end:
            yield from _equal_vectors(values)

    def _vanishing_vectors(self, values: Mapping[str, float | None]) -> Iterator[tuple[str, tuple[str, str]]]:
        loss, at_chance = _contrastive(values)
        for kind, plural in (("document", "documents"), ("query", "queries")):
            l0 = values.get(f"l0_{kind}")
            if l0 is None:
                continue
            highest = self._highest[kind] = max(self._highest.get(kind, 0), round(l0))
            if at_chance and 0 < l0 <= _VANISHED * highest:
                shrank = f"{plural} shrank from {highest} to {l0:.1f} active terms"
                remedy = "lower the learning rate, lengthen the warm-up, or give the run more patience"
                yield f"vanishing_{kind}", (f"{shrank} and the loss is at chance ({loss:.3f})", remedy)

    def state(self) -> dict[str, int]:
        """Return the state of a checkpoint, as JSON values: reports by symptom, highest active terms."""
        return self._streaks | {f"{_HIGHEST}{kind}": highest for kind, highest in self._highest.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a checkpoint."""
        whole = {str(name): int(seen) for name, seen in state.items()}
        self._highest = {name.removeprefix(_HIGHEST): n for name, n in whole.items() if name.startswith(_HIGHEST)}
        self._streaks = {name: seen for name, seen in whole.items() if not name.startswith(_HIGHEST)}


def _contrastive(values: Mapping[str, float | None]) -> tuple[float, bool]:
    """Return the contrastive loss, and whether it is near chance; 0 and False if chance is unknown."""
    chance = values.get("chance")
    if chance is None:
        return 0.0, False
    loss = sum(values.get(f"loss_{name}") or 0.0 for name in CONTRASTIVE)
    return loss, abs(loss - chance) <= _CHANCE * chance


def _equal_vectors(values: Mapping[str, float | None]) -> Iterator[tuple[str, tuple[str, str]]]:
    chance, enough, at_chance = values.get("chance"), _IDENTICAL, ""
    if chance is not None:
        loss, near = _contrastive(values)
        if not near:
            return
        enough, at_chance = _EQUAL, f" and the loss is at chance ({loss:.3f}; equal vectors have {chance:.3f})"
    for kind, plural in (("document", "documents"), ("query", "queries")):
        cosine = values.get(f"cosine_{kind}")
        if cosine is not None and cosine >= enough:
            sentence = f"all {plural} have nearly the same vector (mean cosine {cosine:.4f}){at_chance}"
            yield f"equal_{kind}", (sentence, "lower the learning rate or the regularizers, or lengthen their ramps")


def check_numbers(step: int, values: Mapping[str, float | None]) -> None:
    """Raise ``TrainingCollapsedError`` if the loss or the norm of the gradients is not finite."""
    for name, title in (("loss", "the loss"), ("grad_norm", "the norm of the gradients")):
        value = values.get(name)
        if value is not None and not math.isfinite(value):
            raise errors.TrainingCollapsedError(
                f"step {step}: {title} is {value}; lower optimizer.learning_rate, set optimizer.max_grad_norm, or "
                "train with scale.precision fp32"
            )
