"""Single flipped bits anywhere in a version: ``verify=True`` finds them; lazy verification returns no wrong result."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lsr_prod.errors import ArtifactError, PublicationError
from lsr_prod.search import Searcher
from lsr_prod.search.index_snapshot import Verify
from lsr_prod.search.query.filters import field
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import FileDigest, canonical_json, digest_path
from lsr_prod.storage.formats.index_format import IndexVersion
from lsr_prod.storage.index_versions import read_version
from tests.indexing.corpus import Doc, make_index
from tests.indexing.publishing import publish

V = 400
TYPES = {"year": "int64", "lang": "string", "grade": "float64"}
FLIPS = 600
QUICK = 60


def documents(n: int) -> dict[str, Doc]:
    rng = np.random.default_rng(11)
    corpus = {}
    for i in range(n):
        terms = rng.choice(V, 8, replace=False)
        stored = {"year": str(1900 + i % 120), "lang": ["en", "de", None][i % 3], "grade": str(i / 8)}
        impacts = np.sort(rng.integers(1, 256, 8))[::-1]
        doc = Doc(
            {int(t): int(x) for t, x in zip(terms, impacts, strict=True)}, f"text {i % 50} of document {i}", stored
        )
        corpus[f"document/{i * 7919 % n:06d}"] = doc
    return corpus


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards, one of several record batches and pages; deleted documents and a list of takedowns."""
    folder = tmp_path_factory.mktemp("damage") / "index"
    corpus = documents(20_000)
    gone = [doc_id for i, doc_id in enumerate(corpus) if i % 97 == 0]
    small = dict(list(corpus.items())[:300])
    one = make_index(folder, small, vocabulary_size=V, deleted=gone, attributes=TYPES, bm25=True)
    rest = {doc_id: doc for doc_id, doc in corpus.items() if doc_id not in small}
    other = make_index(folder, rest, vocabulary_size=V, deleted=gone, attributes=TYPES, bm25=True)
    path = folder / "takedowns" / "list.json"
    path.parent.mkdir()
    path.write_bytes(canonical_json(sorted(gone)))
    sha = digest_path(path)
    path = path.rename(path.with_name(f"{sha}.json"))
    version = IndexVersion(
        **{
            **{name: getattr(one, name) for name in one.__dataclass_fields__},
            "shards": one.shards + other.shards,
            "tombstones": one.tombstones + other.tombstones,
            "takedowns": FileDigest(f"takedowns/{sha}.json", sha, path.stat().st_size),
        }
    )
    Store(str(folder)).put_new(f"versions/{version.sha}.json", canonical_json(version.to_json()))
    publish(folder, version.sha)
    for publication in (1, 2):  # only the files of one version remain
        (folder / "publications" / f"{publication:06d}.json").unlink()
    for old in (one, other):
        (folder / "versions" / f"{old.sha}.json").unlink()
    return folder


def files_of(index: Path) -> list[Path]:
    """Return all files of a version that are not empty."""
    return sorted(path for path in index.rglob("*") if path.is_file() and path.stat().st_size)


def positions(files: list[Path], count: int, seed: int) -> list[tuple[Path, int, int]]:
    """Return a byte and a bit of each file in turn, edges first, so that small files are covered too."""
    rng = np.random.default_rng(seed)
    chosen = []
    for i in range(count):
        path, size = files[i % len(files)], files[i % len(files)].stat().st_size
        turn = i // len(files)
        byte = (0, size - 1)[turn] if turn < 2 else int(rng.integers(0, size))
        chosen.append((path, byte, int(rng.integers(0, 8))))
    return chosen


@contextmanager
def flipped(path: Path, byte: int, bit: int) -> Iterator[None]:
    def flip() -> None:
        with path.open("r+b") as file:
            file.seek(byte)
            value = file.read(1)[0]
            file.seek(byte)
            file.write(bytes([value ^ (1 << bit)]))

    flip()
    try:
        yield
    finally:
        flip()


def undetected(index: Path, count: int, seed: int) -> list[tuple[str, int, int]]:
    files, missed = files_of(index), []
    assert Searcher.open(index, verify=True).documents == 20_000 - 207
    assert len({path.suffix for path in files} & {".npy", ".json", ".arrow"}) == 3
    for path, byte, bit in positions(files, count, seed):
        with flipped(path, byte, bit):
            try:
                Searcher.open(index, verify=True)
            except ArtifactError:
                continue
            missed.append((str(path.relative_to(index)), byte, bit))
    return missed


@pytest.mark.long
def test_verify_finds_every_flipped_bit(index):
    files = files_of(index)
    kinds = {path.relative_to(index).parts[0] for path in files}
    assert kinds == {"bundles", "publications", "shards", "takedowns", "tombstones", "versions"}
    # The quick test covers each small file once; the slow test covers all files many times.
    assert undetected(index, max(QUICK, len(files)), 1) == []


@pytest.mark.slow
def test_verify_finds_every_flipped_bit_in_all_files(index):
    assert undetected(index, FLIPS, 2) == []


def asks() -> list[Callable[[Searcher], Any]]:
    """Return calls that read mapped files: queries, fields, filters, explanations, Tantivy."""
    rng = np.random.default_rng(3)
    found: list[Callable[[Searcher], Any]] = []
    options: list[dict[str, Any]] = [
        {"k": 10},
        {"k": 300, "fields": ["text", "year", "lang", "grade"]},
        {"k": 50, "min_terms": 2, "count": True},
        {"k": 20, "rescore": 400, "qk": 2},
        {"k": 20, "filter": (field("year") >= 1950) & ~field("lang").is_null()},
        {"k": 20, "filter": field("doc_id").starts_with("document/0000")},
        {"k": 5, "filter": field("grade") < 3.0, "deduplicate": "lang"},
    ]
    for chosen in options:
        vector = {int(t): float(w) for t, w in zip(rng.choice(V, 6), rng.exponential(size=6), strict=True)}
        found.append(lambda s, v=vector, o=chosen: answer(s.search_vector(v, **o)))
    everything = dict.fromkeys(range(V), 1.0)
    found.append(lambda s: answer(s.search_vector(everything, 10_000, min_terms=3)))
    found.append(lambda s: answer(s.search_vector(everything, 20, filter=field("doc_id") == "document/000003")))
    found.append(lambda s: s.explain({1: 1.0, 2: 2.0, 3: 0.5}, "document/000123"))
    found.append(lambda s: [s.document_frequency(t) for t in range(V)])
    found.append(lambda s: answer(s.bm25("document 17", 5, fields=["text"])))
    mixed = {"text": "document 17", "hybrid": Hybrid(words=0.5)}
    found.append(lambda s: answer(s.search_vector({1: 1.0, 2: 2.0}, 20, **mixed)))
    found.append(lambda s: s.match_terms([1, 2, 3, 4, 5], 2))
    return found


def answer(result: Any) -> Any:
    return result.hits, result.matched, result.matched_exact, result.required, result.version


def wrong_answers(index: Path, count: int, seed: int) -> tuple[list[Any], int]:
    """Return the results that differ from the undamaged ones, and the number of flips that raised an error."""
    searcher, some = Searcher.open(index), asks()
    expected = [ask(searcher) for ask in some]
    wrong, met = [], 0
    for path, byte, bit in positions(files_of(index), count, seed):
        with flipped(path, byte, bit):
            refused = 0
            try:
                damaged = Searcher.open(index)
            except (ArtifactError, PublicationError):
                met += 1
                continue
            for number, ask in enumerate(some):
                try:
                    given = ask(damaged)
                except ArtifactError:
                    refused += 1
                    continue
                if given != expected[number]:
                    wrong.append((str(path.relative_to(index)), byte, bit, number))
            met += refused > 0
    return wrong, met


@pytest.mark.long
def test_lazy_verification_returns_no_wrong_result(index):
    wrong, met = wrong_answers(index, QUICK, 4)
    assert wrong == []
    assert met > QUICK / 3


@pytest.mark.slow
def test_lazy_verification_returns_no_wrong_result_for_many_flips(index):
    wrong, met = wrong_answers(index, FLIPS, 5)
    assert wrong == []
    assert met > FLIPS / 3


def test_damaged_page_raises_until_file_is_repaired(index, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(index, folder)
    searcher = Searcher.open(folder)
    path = next(path for path in files_of(folder) if path.name == "impacts.npy" and path.stat().st_size > 100_000)
    vector = dict.fromkeys(range(V), 1.0)
    with flipped(path, path.stat().st_size // 2, 3):
        for _ in range(2):
            with pytest.raises(ArtifactError, match=r"impacts\.npy is damaged at byte"):
                searcher.search_vector(vector)
    assert answer(searcher.search_vector(vector)) == answer(Searcher.open(index).search_vector(vector))


def test_rebuilt_shard_with_same_name_is_opened(index, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(index, folder)
    shards = read_version(folder, Searcher.open(folder).version.sha).shards
    one, other = (folder / "shards" / shard.sha / "shard.json" for shard in shards)
    text = one.read_text()
    one.write_text(text.replace('"postings":', '"postings":1'))
    with pytest.raises(ArtifactError, match=r"shard\.json"):
        Searcher.open(folder, verify=True)
    one.write_bytes(other.read_bytes())
    with pytest.raises(ArtifactError, match=r"shard\.json belongs to"):
        Searcher.open(folder, verify=True)
    one.unlink()
    with pytest.raises(ArtifactError, match=r"shard\.json is missing"):
        Searcher.open(folder, verify=True)


def test_an_id_that_is_no_text_is_damage_in_files_that_are_not_verified(tmp_path: Path) -> None:
    make_index(tmp_path, {"é1": Doc({1: 9}), "é2": Doc({1: 7})}, vocabulary_size=4)
    (path,) = tmp_path.glob("shards/*/docs.arrow")
    path.write_bytes(path.read_bytes().replace("é1é2".encode(), b"\xff" + "é1é2".encode()[1:]))
    searcher = Searcher.open(tmp_path, verify=False)
    for ask in (
        lambda: searcher.search_vector({1: 1.0}),
        lambda: searcher.search_vector({1: 1.0}, rescore=10),
        lambda: searcher.match_terms([1]),
        lambda: searcher.get(["é1"]),
    ):
        with pytest.raises(ArtifactError, match="has an id that is damaged"):
            ask()


@pytest.mark.parametrize("verify", [False, "lazy"])
def test_a_missing_index_of_tantivy_is_damage(tmp_path: Path, verify: Verify) -> None:
    make_index(tmp_path, {"a": Doc({1: 9}, "a lock")}, vocabulary_size=4)
    with Searcher.open(tmp_path, verify=verify) as searcher:
        (folder,) = tmp_path.glob("shards/*/tantivy")
        shutil.rmtree(folder)
        with pytest.raises(ArtifactError, match="tantivy"):
            searcher.match_boolean("lock")
