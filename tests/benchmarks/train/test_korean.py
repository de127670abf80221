"""The data of the Korean benchmark: a question is held out together with its paragraph."""

import json
from pathlib import Path

from benchmarks.train.korean import write_data


def test_no_training_pair_names_a_paragraph_that_is_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    paragraphs = [{"_id": f"d{i}", "title": "t", "text": f"paragraph {i}"} for i in range(8)]
    lines(data / "korquad_dev" / "corpus.jsonl", paragraphs)
    lines(data / "korquad_dev" / "queries.jsonl", [{"_id": f"q{i}", "text": f"question {i}"} for i in range(16)])
    (data / "korquad_dev" / "qrels").mkdir()
    judged = "".join(f"q{i}\td{i // 2}\t1\n" for i in range(16))
    (data / "korquad_dev" / "qrels" / "all.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    lines(data / "tldr_ko" / "corpus.jsonl", [{"_id": "p", "title": "page", "text": " ".join(map(str, range(70)))}])
    lines(data / "tldr_ko" / "pairs.jsonl", [{"query": "description", "pos": "page"}])

    write_data(data, tmp_path / "work")
    asked = {row["text"] for row in read(tmp_path / "work" / "collection" / "queries.jsonl")}
    pairs = read(tmp_path / "work" / "pairs.jsonl")
    relevant = {
        line.split("\t")[1].removeprefix("korquad-d")
        for line in (tmp_path / "work" / "collection" / "qrels" / "test.tsv").read_text().splitlines()[1:]
    }
    assert len(asked) == 4
    assert len(relevant) == 2
    assert not asked & {pair["query"] for pair in pairs}
    assert not {f"t paragraph {i}" for i in relevant} & {pair["positive"] for pair in pairs}
    assert len(pairs) == 16 - 4 + 1
    assert len(read(tmp_path / "work" / "collection" / "corpus.jsonl")) == 9
    assert len(read(tmp_path / "work" / "texts.jsonl")) == 8 + 3


def lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
