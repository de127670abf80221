"""One run: a chain of stages on a stand-in, then its quality and cost. Everything is kept under a digest."""

import json
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import TypeAdapter
from safetensors import safe_open
from safetensors.torch import save_file

from benchmarks.results.material import MEASURE, Material
from benchmarks.stand_ins import ALONE, NOTHING
from benchmarks.train.pruning_models import encode
from lsr_prod import SparseEncoder
from lsr_prod.config.training import FinetuneSettings, StageSettings
from lsr_prod.evaluation.vector_evaluation import Encoded, evaluate
from lsr_prod.model import model_digest
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data.layouts import PackedLayout, TextForm, TokenSettings, WordLayout, pack, word_rows
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.encoder_setup import merge_lora
from lsr_prod.training.language.trainer import LanguageTrainer, make_objective
from lsr_prod.training.process_group import Group
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stages.registry import TRANSFORMATIONS
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE

QUERY_LENGTH, DOCUMENT_LENGTH = 24, 48
_KEPT_EVERY = 20  # steps
_FORMAT = 3  # raise it when the same stages train other weights, as on other texts
_KINDS: TypeAdapter[Any] = TypeAdapter(StageSettings)
_PLACES = ("data", "target", "target_embeddings", "teacher", "unigrams")
_NOT_DIGESTED: dict[str, Any] = {**dict.fromkeys(_PLACES, True), "scale": {"attention"}}


@dataclass(frozen=True, slots=True)
class Chain:
    """Chain of stages that is applied to a stand-in.

    Attributes:
        start: name of the stand-in.
        stages: settings of the stages; without ``finetune`` the model is measured as it is.
        levels: pairs (qk, dk) to measure.
        thresholds: overlap thresholds to measure.
    """

    start: str
    stages: tuple[Mapping[str, Any], ...]
    levels: tuple[tuple[int, int], ...] = ((0, 0),)
    thresholds: tuple[float, ...] = (0.0,)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one run.

    Attributes:
        by_query: the measure of every query, by "collection qk dk threshold".
        cost: L0 of queries and documents, FLOPS (esplade-pretraining, eq. 1) and matched documents, by the same key.
        loss: of the ranking loss, in the first and the last tenth of the steps; None without fine-tuning.
        seconds: of the fine-tuning.
        losses: of the ranking, of every step.
    """

    by_query: dict[str, list[float]]
    cost: dict[str, dict[str, float]]
    loss: tuple[float, float] | None
    seconds: float
    losses: Sequence[float] = ()

    def values(self, collection: str = "tldr", level: tuple[int, int] = (0, 0), threshold: float = 0.0) -> Any:
        """The measure of every query, float64 [Q]."""
        return np.array(self.by_query[key(collection, level, threshold)])


def key(collection: str, level: tuple[int, int], threshold: float) -> str:
    """The key of a measurement."""
    return f"{collection} {level[0]} {level[1]} {threshold:g}"


@dataclass(frozen=True, slots=True)
class Training:
    """Record of a fine-tuning: ``loss``, ``seconds`` and ``losses`` of its ``Outcome``."""

    loss: tuple[float, float] | None
    seconds: float
    losses: Sequence[float] = ()


class Workshop:
    """Runs chains, and finds those that were run before."""

    def __init__(self, material: Material) -> None:
        """Create the folders."""
        self.material = material
        self._digests: dict[Path, str] = {}
        for name in ("models", "outcomes"):
            (material.work / name).mkdir(parents=True, exist_ok=True)

    def outcome(self, chain: Chain, seed: int) -> Outcome:
        """Run a chain, unless that was done."""
        digest = digest_json([_FORMAT, self._name(chain, seed), asdict(chain), sorted(self.material.collections)])
        file = self.material.work / "outcomes" / f"{digest}.json"
        if not file.exists():
            found = self._run(chain, seed)
            draft = file.with_suffix(".draft")
            draft.write_text(json.dumps(asdict(found)))
            draft.rename(file)
        return Outcome(**json.loads(file.read_text()))

    def model(self, chain: Chain, seed: int) -> Path:
        """The folder of the model at the end of a chain, which was run before."""
        return self._folder(chain, seed, len(chain.stages))

    def kept(self, kind: str, models: Sequence[Path], make: Callable[[], str]) -> str:
        """Text that is made of models, from the cache if they have not changed.

        Args:
            kind: what the text is.
            models: folders of models that were run before.
            make: makes it.
        """
        file = self.material.work / "texts" / f"{digest_json([_FORMAT, kind, [one.name for one in models]])}.md"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            draft = file.with_suffix(".draft")
            draft.write_text(make(), encoding="utf-8")
            draft.rename(file)
        return file.read_text(encoding="utf-8")

    def _name(self, chain: Chain, seed: int) -> str:
        return self._folder(chain, seed, len(chain.stages)).name

    def _folder(self, chain: Chain, seed: int, stages: int) -> Path:
        settings = [_digested(_settings(stage, seed)) for stage in chain.stages[:stages]]
        start = self.material.start(chain.start)
        if start not in self._digests:
            self._digests[start] = model_digest(start)
        name = digest_json([_FORMAT, self._digests[start], self.material.quick, settings])
        return self.material.work / "models" / name if stages else start

    def _run(self, chain: Chain, seed: int) -> Outcome:
        folder = self._folder(chain, seed, 0)
        training = Training(None, 0.0)
        for number, raw in enumerate(chain.stages):
            before, folder = folder, self._folder(chain, seed, number + 1)
            settings = _settings(raw, seed)
            record = folder.with_suffix(".json")
            if not folder.exists() or (isinstance(settings, FinetuneSettings) and not record.exists()):
                self._run_stage(settings, before, folder)
            training = Training(**json.loads(record.read_text())) if record.exists() else training
        by_query, cost = self._measure(SparseEncoder.load(folder), chain)
        return Outcome(by_query, cost, training.loss, training.seconds, training.losses)

    def _run_stage(self, settings: Any, before: Path, folder: Path) -> None:
        """Write the model after a stage, and the record of its training next to it if it is fine-tuned."""
        encoder = SparseEncoder.load(before)
        with tempfile.TemporaryDirectory(dir=self.material.work) as scratch:
            if isinstance(settings, FinetuneSettings):
                losses, seconds = finetune(encoder, settings, self.material, folder.with_suffix(".part"))
                tenth = max(1, len(losses) // 10)
                loss = (float(np.mean(losses[:tenth])), float(np.mean(losses[-tenth:])))
                record = Training(loss, seconds, [round(one, 4) for one in losses])
                folder.with_suffix(".json").write_text(json.dumps(asdict(record)))
            else:
                encoder = self._changed(encoder, settings, before, Path(scratch))
            if not folder.exists():
                encoder.eval().save(Path(scratch) / "model")
                if (moved := Path(scratch) / TRANSFER_FILE).exists():
                    moved.rename(Path(scratch) / "model" / TRANSFER_FILE)
                (Path(scratch) / "model").rename(folder)

    def _changed(self, encoder: SparseEncoder, settings: Any, before: Path, scratch: Path) -> SparseEncoder:
        if settings.stage in ("adapt_mlm", "pretrain_emlm", "adapt_causal", "distil_head"):
            record = before / TRANSFER_FILE
            new = json.loads(record.read_text())["new"] if record.exists() else ()
            teacher = Path(settings.teacher) if settings.stage == "distil_head" else None
            return modeled(encoder, settings, self.material.texts, new, teacher)
        changed, _ = TRANSFORMATIONS[settings.stage](encoder, settings, {}, scratch)
        return changed

    def _measure(
        self, encoder: SparseEncoder, chain: Chain
    ) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
        by_query: dict[str, list[float]] = {}
        cost: dict[str, dict[str, float]] = {}
        documents, reports, read = None, [], None
        for name, collection in self.material.collections.items():
            if documents is None:  # the same in both
                documents = Encoded(
                    list(collection.documents), encode(encoder, list(collection.documents.values()), "document")
                )
            texts = list(collection.queries.values())
            tokens = encoder.tokenizer(texts)["input_ids"]
            if tokens != read:  # else the model cannot tell them from those before: it reads lower case
                read = tokens
                reports = evaluate(
                    documents, Encoded(list(collection.queries), encode(encoder, texts, "query")), collection.qrels,
                    levels=chain.levels, thresholds=chain.thresholds, measures=[MEASURE],
                )  # fmt: skip
            for one in reports:
                place = key(name, (one.qk, one.dk), one.threshold)
                by_query[place] = one.by_query[MEASURE].tolist()
                cost[place] = {"l0_query": one.l0_query, "l0_document": one.l0_document, "flops": one.flops}
                cost[place]["matched"] = one.matched
        return by_query, cost


def modeled(
    encoder: SparseEncoder, settings: Any, texts: Sequence[str], new: Sequence[int], teacher: Path | None
) -> SparseEncoder:
    """The encoder after training on texts that the seed draws, in place."""
    drawn = random.Random(settings.seed).sample(list(texts), min(len(texts), settings.steps * settings.batch.texts))
    rows = SampleRows(_examples(encoder, settings, drawn, teacher))
    objective = make_objective(settings, encoder, new_tokens=new, teacher=teacher)
    alone = Group(0, 1, encoder.model.device)
    trainer = LanguageTrainer(encoder, rows, settings, alone, objective)  # type: ignore[arg-type]
    while trainer.step < trainer.steps:
        trainer.train_step()
    return _finished(encoder, settings)


def _examples(encoder: SparseEncoder, settings: Any, texts: Sequence[str], teacher: Path | None) -> list[Example]:
    """The rows that the objective of a stage reads."""
    match settings.stage:
        case "adapt_causal":
            whole = [np.array(one, np.int32) for one in encoder.tokenizer(list(texts))["input_ids"]]
            layout = PackedLayout(settings.max_length, int(encoder.tokenizer.eos_token_id))
            return [Example(NOTHING, (block,), None) for block in pack(whole, layout)]
        case "pretrain_emlm":
            form = TextForm("", settings.max_length)
            tokens = TokenSettings(encoder.tokenizer.backend_tokenizer.to_str(), form, form)
            found = word_rows(texts, tokens, form, WordLayout(tuple(encoder.vocabulary)))
            return [Example(NOTHING, (ids, spans), None) for ids, spans in found if len(spans)]
        case "distil_head":
            assert teacher is not None
            taught = _ids(SparseEncoder.load(teacher), texts, settings.max_length)
            own = _ids(encoder, texts, settings.max_length)
            return [Example(one, (ids,), None) for one, ids in zip(taught, own, strict=True)]
        case _:
            return [Example(NOTHING, (ids,), None) for ids in _ids(encoder, texts, settings.max_length)]


def finetune(
    encoder: SparseEncoder, settings: FinetuneSettings, material: Material, part: Path
) -> tuple[list[float], float]:
    """Fine-tune on the pairs, in place; the ranking loss of every step and the seconds of all steps.

    Args:
        encoder: is trained.
        settings: of the stage.
        material: the pairs.
        part: file with the state of an interrupted training, which is resumed from it.
    """
    wanted = (settings.steps or 1) * settings.batch.queries
    drawn = random.Random(settings.seed).sample(material.pairs, min(len(material.pairs), wanted))
    queries = _ids(encoder, [query for query, _ in drawn], QUERY_LENGTH)
    documents = _ids(encoder, [document for _, document in drawn], DOCUMENT_LENGTH)
    rows = SampleRows([Example(query, (document,), None) for query, document in zip(queries, documents, strict=True)])
    trainer = Trainer(encoder, rows, settings, ALONE)  # type: ignore[arg-type]
    name = settings.objective.losses[0].loss
    losses, seconds = _resumed(trainer, part) if part.exists() else ([], 0.0)
    began = time.perf_counter() - seconds
    while trainer.step < trainer.steps:
        losses.append(trainer.train_step().losses[name])
        if trainer.step % _KEPT_EVERY == 0:
            _keep(trainer, part, losses, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    _finished(encoder, settings)
    part.unlink(missing_ok=True)
    return losses, seconds


def _keep(trainer: Trainer, part: Path, losses: Sequence[float], seconds: float) -> None:
    parts = trainer.tensors(keep=True).items()
    tensors = {f"{name} {key}": one.contiguous() for name, kept in parts for key, one in kept.items()}
    draft = part.with_suffix(".draft")
    save_file(tensors, draft, {"record": json.dumps([losses, seconds])})
    draft.rename(part)


def _resumed(trainer: Trainer, part: Path) -> tuple[list[float], float]:
    tensors: defaultdict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    with safe_open(part, "pt") as kept:
        losses, seconds = json.loads(kept.metadata()["record"])
        for place in kept.keys():  # noqa: SIM118 - the file is no dictionary
            name, key = place.split(" ", 1)
            tensors[name][key] = kept.get_tensor(place)
    trainer.load(len(losses), tensors)
    return losses, seconds


def _finished(encoder: SparseEncoder, settings: Any) -> SparseEncoder:
    if settings.scale.lora is not None:
        merge_lora(encoder.model)
    return encoder.eval()


def _settings(stage: Mapping[str, Any], seed: int) -> Any:
    kind = dict(stage)
    if "seed" in kind:
        kind["seed"] = seed  # only stages that say "seed" vary with it
    return _KINDS.validate_python(kind)


def _digested(settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = settings.model_dump(mode="json", exclude=_NOT_DIGESTED)
    return found | {
        name: Path(str(getattr(settings, name))).name for name in ("target", "teacher") if getattr(settings, name, None)
    }


def _ids(encoder: SparseEncoder, texts: Sequence[str], length: int | None) -> list[npt.NDArray[np.int32]]:
    rows = encoder.tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    return [np.array(row, np.int32) for row in rows]
