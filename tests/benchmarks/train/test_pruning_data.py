import json
from pathlib import Path

import ir_measures

from benchmarks.train.pruning_data import few_documents, few_queries, page_texts, scifact_pairs, split_tldr
from lsr_prod.evaluation.validation import Collection


def tldr(folder: Path, pages: int = 20) -> Path:
    """Three queries a page, and one that every page has."""
    rows = [
        {"query": query, "pos_id": f"p{page}", "pos": f"page {page}"}
        for page in range(pages)
        for query in ("display help", f"a{page}", f"b{page}", f"c{page}")
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_nothing_of_a_held_out_page_is_trained(tmp_path: Path) -> None:
    split = split_tldr(tldr(tmp_path), test_pages=4, development_pages=3)

    held_out = {qrel.doc_id for one in (split.test, split.development) for qrel in one.qrels}
    assert len(held_out) == 7
    assert not {split.test.documents[page] for page in held_out} & {text for _, text in split.train}
    assert (len(split.test.queries), len(split.development.queries), len(split.train)) == (12, 9, 39)
    assert len(split.test.documents) == len(split.development.documents) == 20


def test_pages_of_held_out_queries_have_title_and_description_only(tmp_path: Path) -> None:
    folder = tldr(tmp_path)
    rows = [
        {"_id": f"p{page}", "title": "page", "text": f"{page}. A: a{page} B: b{page} C: c{page}"} for page in range(20)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    split = split_tldr(folder, test_pages=4, development_pages=3)

    texts = page_texts(folder, test_pages=4, development_pages=3)

    held_out = {query for one in (split.test, split.development) for query in one.queries.values()}
    assert not {word for text in texts for word in text.split()} & held_out
    assert sum(text.count(":") for text in texts) == 3 * 13
    assert [int(text.split()[1].rstrip(".")) for text in texts] == list(range(20))


def test_scifact_pairs_leave_out_abstracts_of_test_claims(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t10\t1\n1\t20\t0\n")
    documents = [{"_id": str(number), "title": "title", "text": f"abstract {number}"} for number in (10, 20, 30)]
    pairs = [{"query": f"claim {row['_id']}", "pos": f"title {row['text']}"} for row in documents]
    for name, lines in (("corpus", documents), ("pairs_train", pairs), ("queries", [{"_id": "1", "text": "claim"}])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert [query for query, _ in scifact_pairs(tmp_path)] == ["claim 20", "claim 30"]


def test_a_query_of_several_pages_is_left_out(tmp_path: Path) -> None:
    split = split_tldr(tldr(tmp_path), test_pages=4, development_pages=3)

    asked = [*split.test.queries.values(), *split.development.queries.values(), *(query for query, _ in split.train)]
    assert "display help" not in asked
    assert len(set(asked)) == len(asked) == 60


def test_fewer_documents_hold_the_relevant_ones(tmp_path: Path) -> None:
    test = split_tldr(tldr(tmp_path), test_pages=4, development_pages=3).test

    few = few_documents(test, 6)

    assert len(few.documents) == 6
    assert {qrel.doc_id for qrel in few.qrels} <= set(few.documents)
    assert len(few_documents(test, 1).documents) == 4


def test_few_queries_are_from_all_over_the_collection() -> None:
    queries = {f"q{number}": "text" for number in range(10)}
    judged = [ir_measures.Qrel(query_id, "d", 1) for query_id in queries]

    few = few_queries(Collection({"d": "text"}, queries, judged), 4)

    assert list(few.queries) == ["q0", "q3", "q6", "q9"]
    assert [qrel.query_id for qrel in few.qrels] == ["q0", "q3", "q6", "q9"]
