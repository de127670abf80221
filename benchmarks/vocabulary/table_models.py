"""The models of the vocabulary table: a toy is pre-trained, moved, adapted, calibrated, fine-tuned and measured."""

import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import BertConfig, BertForMaskedLM

from benchmarks.train.causal_adaptation import ALONE, NOTHING, wikitext
from benchmarks.train.pruning_data import Pair, Split, few_documents, scifact_pairs, scifact_test, split_tldr
from benchmarks.train.pruning_models import DOCUMENT_LENGTH, QUERY_LENGTH, measure
from benchmarks.train.recipes_data import word_piece_tokenizer
from benchmarks.vocabulary.table_stages import DOCUMENTS, WIKITEXT, Job, Sizes, Stages, digested, pretraining, stages_of
from lsr_prod import SparseEncoder
from lsr_prod.config.language import AdaptMlmSettings
from lsr_prod.config.training import FinetuneSettings
from lsr_prod.evaluation.validation import Collection
from lsr_prod.evaluation.vector_evaluation import LevelReport
from lsr_prod.model import model_digest
from lsr_prod.storage.formats.digests import digest_json
from lsr_prod.training.data.training_set import Example, SampleRows
from lsr_prod.training.language.trainer import LanguageTrainer, make_objective
from lsr_prod.training.retrieval.trainer import Trainer
from lsr_prod.training.stages.stage_facts import TRANSFER_FILE
from lsr_prod.training.stages.transformations import calibrate
from lsr_prod.training.stages.vocabulary import transfer_vocabulary as transfer

MEASURE = "RR@10"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fine-tuning led to; of what is searched, by collection.

    Attributes:
        active: share of pairs of text and term with a weight above 0 before it, on texts that APC did not see.
        loss: InfoNCE over the last fifth of the steps.
        rr10: MRR@10.
        l0_query: active terms of a query.
        l0_document: active terms of a document.
        flops: papers/esplade-pretraining, eq. 1.
    """

    active: float
    loss: float
    rr10: dict[str, float]
    l0_query: dict[str, float]
    l0_document: dict[str, float]
    flops: dict[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """What all jobs share, and what is sent to every process.

    Attributes:
        data: folder of the collections.
        work: folder that keeps results.
        source: model directory of the toy.
        sizes: of everything.
    """

    data: Path
    work: Path
    source: Path
    sizes: Sizes


def prepare(data: Path, work: Path, sizes: Sizes) -> Place:
    """Make the toy, unless that was done, and write the texts that stages read from files."""
    (work / "results").mkdir(parents=True, exist_ok=True)
    _write_texts(work / WIKITEXT, paragraphs(data))
    _write_texts(work / DOCUMENTS, [document for _, document in training_pairs(data)])
    stage = pretraining(sizes)
    source = work / f"source-{digest_json(digested(stage))[:16]}"
    if not source.exists():
        sys.stderr.write(f"pre-training the toy, {stage.steps} steps\n")
        toy = small_bert(data / "vocabularies" / "bert-base-cased-vocab.txt")
        modelled(toy, stage, paragraphs(data)).save(source)
    return Place(data, work, source, sizes)


def outcomes(job: Job, place: Place) -> dict[str, Outcome]:
    """What the two fine-tunings led to, ``off`` and ``on``, unless that is known from before."""
    stages = stages_of(job, place.sizes, place.work)
    made_from = [model_digest(place.source), asdict(place.sizes), asdict(job), stages.to_json()]
    file = place.work / "results" / f"{digest_json(made_from)}.json"
    if not file.exists():
        found = {apc: asdict(one) for apc, one in _made(stages, place).items()}
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(found))
        draft.rename(file)
    return {apc: Outcome(**one) for apc, one in json.loads(file.read_text()).items()}


def small_bert(vocabulary: Path) -> SparseEncoder:
    """A BERT of 2 layers x 128 on this vocabulary, with random weights."""
    tokenizer = word_piece_tokenizer(vocabulary, lowercase=False)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=128, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        BertForMaskedLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return SparseEncoder.load(folder, query_max_length=QUERY_LENGTH, document_max_length=DOCUMENT_LENGTH)


def modelled(
    encoder: SparseEncoder, stage: AdaptMlmSettings, texts: Sequence[str], new_tokens: Sequence[int] = ()
) -> SparseEncoder:
    """The encoder after masked language modelling of texts that the seed draws, in place."""
    assert stage.steps is not None
    drawn = random.Random(stage.seed).sample(texts, min(len(texts), stage.steps * stage.batch.texts))
    rows = SampleRows([Example(NOTHING, (ids,), None) for ids in _ids(encoder, drawn, stage.max_length)])
    objective = make_objective(stage, encoder, new_tokens=new_tokens)
    trainer = LanguageTrainer(encoder, rows, stage, ALONE, objective)  # type: ignore[arg-type]
    while trainer.step < trainer.steps:
        trainer.train_step()
    return encoder.eval()


def finetuned(encoder: SparseEncoder, stage: FinetuneSettings, pairs: Sequence[Pair]) -> float:
    """Fine-tune on pairs that the seed draws, in place; the loss over the last fifth."""
    assert stage.steps is not None
    drawn = random.Random(stage.seed).sample(pairs, min(len(pairs), stage.steps * stage.batch.queries))
    queries = _ids(encoder, [query for query, _ in drawn], stage.query_max_length)
    documents = _ids(encoder, [document for _, document in drawn], stage.document_max_length)
    rows = SampleRows([Example(query, (document,), None) for query, document in zip(queries, documents, strict=True)])
    trainer = Trainer(encoder, rows, stage, ALONE)  # type: ignore[arg-type]
    losses = [trainer.train_step().losses["info_nce"] for _ in range(trainer.steps)]
    encoder.eval()
    return float(np.mean(losses[-max(1, len(losses) // 5) :]))


@cache
def paragraphs(data: Path) -> list[str]:
    """Paragraphs of wikitext2 as they were written, as much of each as is read."""
    return [line.replace(" @-@ ", "-").replace("<unk>", "")[:1000] for line in wikitext(data / "wikitext2")]


@cache
def training_pairs(data: Path) -> list[Pair]:
    """Of tldr and SciFact, none of a test query."""
    return _tldr(data).train + scifact_pairs(data / "scifact")


@cache
def collections(data: Path, sizes: Sizes) -> dict[str, Collection]:
    """Held-out queries of tldr over its pages, and SciFact's test claims over its abstracts, a part of each."""
    whole = {"tldr": _tldr(data).test, "scifact": scifact_test(data / "scifact")}
    return {name: few_documents(few_queries(one, sizes.queries), sizes.documents) for name, one in whole.items()}


def few_queries(collection: Collection, count: int) -> Collection:
    """Some queries, from all over the collection, and the same documents."""
    ids = list(collection.queries)
    queries = {query_id: collection.queries[query_id] for query_id in ids[:: -(-len(ids) // count)]}
    return Collection(collection.documents, queries, [qrel for qrel in collection.qrels if qrel.query_id in queries])


def _made(stages: Stages, place: Place) -> dict[str, Outcome]:
    start = _start(stages, place)
    calibrated, seen = calibrate(start, stages.calibrate, {}, place.work)
    found = {}
    for apc, encoder, active in (("off", start, seen["held_out_before"]), ("on", calibrated, seen["held_out"])):
        loss = finetuned(encoder, stages.finetune, training_pairs(place.data))
        reports = {name: _measure(encoder, one) for name, one in collections(place.data, place.sizes).items()}
        found[apc] = Outcome(
            active=active,
            loss=loss,
            rr10={name: report.measures[MEASURE] for name, report in reports.items()},
            l0_query={name: report.l0_query for name, report in reports.items()},
            l0_document={name: report.l0_document for name, report in reports.items()},
            flops={name: report.flops for name, report in reports.items()},
        )
    return found


def _start(stages: Stages, place: Place) -> SparseEncoder:
    """What is calibrated and fine-tuned."""
    encoder = SparseEncoder.load(place.source)
    if stages.transfer is None:
        return encoder
    with tempfile.TemporaryDirectory() as scratch:
        encoder, _ = transfer(encoder, stages.transfer, {}, Path(scratch))
        new_tokens = json.loads((Path(scratch) / TRANSFER_FILE).read_text())["new"]
    return encoder if stages.adapt is None else modelled(encoder, stages.adapt, paragraphs(place.data), new_tokens)


def _measure(encoder: SparseEncoder, collection: Collection) -> LevelReport:
    (report,) = measure(encoder, collection, levels=[(0, 0)], thresholds=[0.0], measures=[MEASURE])
    return report


def _ids(encoder: SparseEncoder, texts: Sequence[str], length: int | None) -> list[npt.NDArray[np.int32]]:
    rows = encoder.tokenizer(list(texts), truncation=True, max_length=length)["input_ids"]
    return [np.array(row, np.int32) for row in rows]


@cache
def _tldr(data: Path) -> Split:
    return split_tldr(data / "tldr_en", test_pages=600, development_pages=300)


def _write_texts(file: Path, texts: Sequence[str]) -> None:
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
