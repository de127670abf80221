import pytest

from lsr_prod.corpus.filelist import KEPT, READ, REMOVED, file_keys, files_digest, iterate_files, list_files, mark
from lsr_prod.corpus.source_file import SourceFile

FILES = [
    SourceFile("/c", "a.jsonl", "jsonl", 5, "t"),
    SourceFile("s3://x", "deep/p.parquet", "parquet", 7, "é", (("lang", None), ("d", "1"))),
    SourceFile("/c", "b.csv.gz", "csv.gz", 0, ""),
]


@pytest.mark.parametrize("copies", [0, 1, 9000])  # 9,000 rows are several batches
def test_files_of_a_list_round_trip_with_their_keys(copies: int):
    listed = list_files(file for _ in range(copies) for file in FILES)
    assert list(iterate_files(listed)) == list(enumerate(FILES * copies))
    assert file_keys(listed).tolist() == [file.key for file in FILES] * copies


def test_files_are_selected_by_state_with_their_ordinals():
    listed = mark(list_files(FILES), [KEPT, READ, REMOVED])
    assert list(iterate_files(listed)) == [(1, FILES[1])]
    assert list(iterate_files(listed, REMOVED)) == [(2, FILES[2])]


def test_digest_depends_on_order_and_state_but_not_on_chunks():
    listed = list_files(FILES)
    digests = {
        files_digest(listed),
        files_digest(list_files(FILES[::-1])),
        files_digest(list_files(FILES[:2])),
        files_digest(mark(listed, [READ, READ, KEPT])),
    }
    assert len(digests) == 4
    assert files_digest(list_files([])) not in digests
    assert files_digest(listed.slice(1)) == files_digest(list_files(FILES[1:]))
