"""What the recipes read at a small size: rows of every kind from tldr, a collection, and models to start from.

Pages of the collection's queries are in no pair of training; rows of plain text have their title and description only.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from benchmarks.train.pruning_data import Pair, few_documents, split_tldr
from lsr_prod import SparseEncoder
from lsr_prod.evaluation.validation import Collection
from lsr_prod.storage.formats.sparse import SparseBatch

NEGATIVES = 4
LENGTH = 64  # tokens of a text


def write_rows(folder: Path, pairs: Sequence[Pair], texts: Iterable[str], teacher: SparseEncoder) -> dict[str, Path]:
    """A JSONL file for each kind of row; negatives are drawn pages, and a small encoder is the teacher.

    Returns:
        Kind -> file.
    """
    draw = random.Random(0)
    pages = sorted({page for _, page in pairs})
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("pairs", "triples", "negatives", "scores")}
    negatives = [[page for page in draw.sample(pages, NEGATIVES + 1) if page != own][:NEGATIVES] for _, own in pairs]
    scores = _scores(teacher, pairs, negatives)
    for (query, page), others, row_scores in zip(pairs, negatives, scores, strict=True):
        rows["pairs"].append({"query": query, "positive": page})
        rows["triples"].append({"query": query, "positive": page, "negative": others[0]})
        rows["negatives"].append({"query": query, "positive": page, "negatives": others})
        rows["scores"].append({"query": query, "documents": [page, *others], "scores": row_scores})
    rows["texts"] = [{"text": text} for text in texts]
    return {kind: _write_lines(folder / f"{kind}.jsonl", found) for kind, found in rows.items()}


def write_collection(folder: Path, data: Path, *, queries: int, documents: int) -> list[Pair]:
    """Held-out queries over a part of tldr's pages, as BEIR has it; returns the pairs that are left for training."""
    split = split_tldr(data / "tldr_en")
    asked = dict(list(split.test.queries.items())[:queries])
    qrels = [qrel for qrel in split.test.qrels if qrel.query_id in asked]
    part = few_documents(Collection(split.test.documents, asked, qrels), documents)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "corpus.jsonl", [{"_id": key, "text": text} for key, text in part.documents.items()])
    _write_lines(folder / "queries.jsonl", [{"_id": key, "text": text} for key, text in asked.items()])
    judged = "".join(f"{qrel.query_id}\t{qrel.doc_id}\t{qrel.relevance}\n" for qrel in qrels)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return split.train


def word_piece_tokenizer(vocabulary: Path, *, lowercase: bool) -> PreTrainedTokenizerFast:
    """BERT's tokenizer of a ``vocab.txt``."""
    terms = {term: i for i, term in enumerate(vocabulary.read_text(encoding="utf-8").split("\n")) if term}
    backend = Tokenizer(models.WordPiece(terms, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    specials = [(role, terms[role]) for role in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=specials)
    backend.add_special_tokens([AddedToken(f"[{role}]") for role in ("PAD", "UNK", "CLS", "SEP", "MASK")])
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


def byte_pair_tokenizer(folder: Path, *, encoder: bool) -> PreTrainedTokenizerFast:
    """GPT-2's tokenizer: for an encoder with the special tokens of RoBERTa around a text, else with its own one."""
    merges = [tuple(line.split(" ")) for line in (folder / "gpt2-vocab.bpe").read_text("utf-8").split("\n")[1:] if line]
    terms = json.loads((folder / "gpt2-encoder.json").read_text(encoding="utf-8"))
    backend = Tokenizer(models.BPE(vocab=terms, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    if not encoder:
        end = "<|endoftext|>"
        return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=end, eos_token=end, unk_token=end)
    names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    backend.add_special_tokens([AddedToken(name) for name in names.values()])
    around = [(name, backend.token_to_id(name)) for name in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=around)
    roles = {f"{role}_token": name for role, name in names.items()} | {"cls_token": "<s>", "sep_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **roles)


def save_with_larger_head(source: Path, folder: Path, factor: float) -> None:
    """A model whose output matrix, tied as it is, is multiplied by ``factor``."""
    encoder = SparseEncoder.load(source)
    with torch.no_grad():
        encoder.model.get_output_embeddings().weight.mul_(factor)
    encoder.save(folder)


def _scores(teacher: SparseEncoder, pairs: Sequence[Pair], negatives: Sequence[Sequence[str]]) -> list[list[float]]:
    pages = sorted({page for _, page in pairs} | {page for others in negatives for page in others})
    place = {page: i for i, page in enumerate(pages)}
    queries = _rows(teacher.encode([query for query, _ in pairs], "query", batch_size=64))
    documents = _rows(teacher.encode(pages, "document", batch_size=64))

    def score(query: Mapping[int, float], page: str) -> float:
        return sum(weight * documents[place[page]].get(term, 0.0) for term, weight in query.items())

    return [
        [score(query, page) for page in (own, *others)]
        for query, (_, own), others in zip(queries, pairs, negatives, strict=True)
    ]


def _rows(batch: SparseBatch) -> list[dict[int, float]]:
    rows = (batch.row(i) for i in range(len(batch)))
    return [dict(zip(terms.tolist(), np.asarray(weights, float).tolist(), strict=True)) for terms, weights in rows]


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
