import pytest

from lsr_prod.corpus.filelist import KEPT, READ, REMOVED, file_keys, files_digest, iterate_files, list_files, mark
from lsr_prod.corpus.source_file import SourceFile

FILES = [
    SourceFile("/c", "a.jsonl", "jsonl", 5, "t"),
    SourceFile("s3://x", "deep/p.parquet", "parquet", 7, "é", (("lang", None), ("d", "1"))),
    SourceFile("/c", "b.csv.gz", "csv.gz", 0, ""),
]


@pytest.mark.parametrize("copies", [0, 1, 9000])  # 9,000 are more than a batch, several times
def test_a_list_gives_its_files_back_with_their_keys(copies: int):
    listed = list_files(file for _ in range(copies) for file in FILES)
    assert list(iterate_files(listed)) == list(enumerate(FILES * copies))
    assert file_keys(listed).tolist() == [file.key for file in FILES] * copies


def test_files_are_found_by_their_state_with_their_place_in_the_list():
    listed = mark(list_files(FILES), [KEPT, READ, REMOVED])
    assert list(iterate_files(listed)) == [(1, FILES[1])]
    assert list(iterate_files(listed, REMOVED)) == [(2, FILES[2])]


def test_the_digest_names_order_and_state_and_is_the_same_for_any_chunks():
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
