"""Whoever can write to the folder of a signed index forges files: a reader that trusts the key gets no wrong answer."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from lsr_prod.errors import ArtifactError, DigestMismatchError, FormatVersionError, SignatureError
from lsr_prod.indexing import delete_documents
from lsr_prod.search import Searcher
from lsr_prod.search.query.filters import field
from lsr_prod.search.query.search_request import Hybrid
from lsr_prod.storage.formats import pages
from lsr_prod.storage.formats.bundle_format import BUNDLE_FILE, CARD_FILE, Bundle, EncoderCard, digest_bundle
from lsr_prod.storage.formats.digests import digest_folder, record_bytes
from lsr_prod.storage.formats.index_format import IndexVersion, ShardManifest
from lsr_prod.storage.formats.pages import PAGE, PAGE_DIGESTS_FILE, PageDigests, page_digests
from lsr_prod.storage.formats.shard_format import DOCUMENTS_FILE, TANTIVY_FOLDER, array_name, is_mapped
from lsr_prod.storage.formats.term_weights import QUERY_WEIGHTS_FILE, weights_to_bytes
from lsr_prod.storage.publications import current_publication
from lsr_prod.storage.signatures import SIGNING_KEY, TRUSTED_KEYS
from tests.indexing.corpus import Doc, make_bundle, make_index
from tests.search.forge import PATCH, forge_file
from tests.storage.keys import KEYS, private, public

V = 60
TEXT = "Pay 100 EUR to account 111."
FORGED = "Pay 999 EUR to account 666."
DOCUMENTS = {f"d{i:02d}": Doc({1: 200 - i, 2 + i % 50: 7}, TEXT if i == 0 else f"filler {i:04d}") for i in range(100)}


@pytest.fixture(autouse=True, scope="module")
def _keys() -> Iterator[None]:
    """This process signs with a key, and trusts no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SIGNING_KEY, private(KEYS[0]))
        patch.setenv(TRUSTED_KEYS, public(KEYS[0]))
        yield


def build(index: Path, corpus: dict[str, Doc], **settings: Any) -> IndexVersion:
    version = make_index(index, corpus, vocabulary_size=V, **settings)
    assert current_publication(index).signature is not None
    return version


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    build(tmp_path / "index", DOCUMENTS)
    return tmp_path / "index"


def shard_file(index: Path, name: str) -> Path:
    (shard,) = (index / "shards").iterdir()
    return shard / name


def test_forged_text_of_signed_index_is_refused(signed):
    path = shard_file(signed, DOCUMENTS_FILE)
    data = path.read_bytes()
    forge_file(path, data.find(TEXT.encode()), FORGED.encode(), free=data.find(b"filler 0050"))
    with pytest.raises(ArtifactError, match=r"docs\.arrow is damaged at byte"):
        Searcher.open(signed).search_vector({1: 1.0}, 1, fields=["text"])


def test_forged_ranking_of_signed_index_is_refused(signed):
    path = shard_file(signed, array_name("impacts"))
    first = path.read_bytes().index(bytes([200, 199, 198]))
    forge_file(path, first + 1, bytes([255]), free=path.stat().st_size - 8)
    with pytest.raises(ArtifactError, match=r"impacts\.npy is damaged at byte"):
        Searcher.open(signed).search_vector({1: 1.0}, 1)


def test_ends_of_offsets_are_verified_when_index_is_opened(tmp_path):
    # They decide how all postings are decoded, whichever terms a query has.
    index = tmp_path / "index"
    make_index(index, DOCUMENTS, vocabulary_size=10_000)
    path = shard_file(index, array_name("term_postings"))
    size = path.stat().st_size
    assert size > 2 * PAGE
    forge_file(path, size - 16, b"\1", free=size - 32)
    with pytest.raises(ArtifactError, match=r"term_postings\.npy is damaged at byte"):
        Searcher.open(index)


def test_takedown_reads_no_forged_ids(signed):
    # Otherwise the next signed version would still show the document.
    path = shard_file(signed, DOCUMENTS_FILE)
    data = path.read_bytes()
    forge_file(path, data.find(b"d04d05d06") + 3, b"d0?", free=data.find(b"filler 0050"))
    with pytest.raises(DigestMismatchError, match=r"docs\.arrow of shard .* is damaged at byte"):
        delete_documents(signed, ["d05"])
    assert current_publication(signed).number == 1


def test_forged_card_of_signed_index_is_refused(signed):
    (card,) = signed.glob(f"bundles/*/{CARD_FILE}")
    card.write_bytes(replace(EncoderCard.load(card.parent), parents=("forged",)).to_bytes())
    with pytest.raises(DigestMismatchError, match=CARD_FILE):
        _ = Searcher.open(signed).snapshot.card


def test_learned_weights_forged_after_open_are_refused(tmp_path):
    make_learned_bundle(tmp_path / "bundle")
    index = tmp_path / "index"
    build(index, DOCUMENTS, bundle=tmp_path / "bundle")
    searcher = Searcher.open(index, bundle=tmp_path / "bundle")
    (folder,) = (index / "bundles").iterdir()
    (folder / QUERY_WEIGHTS_FILE).write_bytes(weights_to_bytes(np.linspace(9, 1, V)))
    bundle = Bundle.load(folder)
    files = tuple(file for file in digest_folder(folder) if file.path != BUNDLE_FILE)
    (folder / BUNDLE_FILE).write_bytes(replace(bundle, files=files).to_bytes())
    with pytest.raises(DigestMismatchError, match=QUERY_WEIGHTS_FILE):
        searcher.search("t1 t2")


def test_text_index_forged_after_its_first_use_is_not_opened(tmp_path):
    index, other = tmp_path / "index", tmp_path / "other"
    build(index, DOCUMENTS)
    build(other, {name: replace(doc, text="filler 0050") for name, doc in DOCUMENTS.items()})
    searcher = Searcher.open(index)
    before = searcher.bm25("0050", 5)
    assert before.matched == 1
    target = shard_file(index, TANTIVY_FOLDER)
    one, forged = "1".zfill(32), "f" * 32
    for path in sorted(shard_file(other, TANTIVY_FOLDER).iterdir()):  # meta.json last
        data = path.read_bytes()
        if path.suffix == ".json":
            data = data.replace(f"{one[:8]}-{one[8:12]}".encode(), f"{forged[:8]}-{forged[8:12]}".encode())
            data = data.replace(f"{one[12:16]}-{one[16:20]}-{one[20:]}".encode(), b"ffff-ffff-" + b"f" * 12)
        (target / path.name.replace(one, forged)).write_bytes(data)
    time.sleep(1.5)  # Tantivy looks at meta.json twice a second, unless its reader reloads on demand only
    assert searcher.bm25("0050", 5).hits == before.hits


def test_index_of_former_format_is_refused_with_one_sentence(signed):
    sha = current_publication(signed).version
    value = json.loads((signed / "versions" / f"{sha}.json").read_bytes())
    with pytest.raises(FormatVersionError, match="index version has format 2, not 5; build the index again"):
        IndexVersion.from_json({**value, "format": 2})


def make_learned_bundle(folder: Path) -> None:
    """A bundle whose queries need no graph: a tokenizer of the words t0, t1 and so on, and a weight for each."""
    make_bundle(folder, [f"t{i}" for i in range(V)])
    tokenizer = Tokenizer(WordLevel({f"t{i}": i for i in range(V)}, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / CARD_FILE).write_bytes(replace(EncoderCard.load(folder), query_encoder="learned").to_bytes())
    (folder / QUERY_WEIGHTS_FILE).write_bytes(weights_to_bytes(np.linspace(1, 2, V)))
    (folder / BUNDLE_FILE).unlink()
    bundle = Bundle(
        files=digest_bundle(folder), precision="fp32", top_k=64, model_digest="0" * 64, inputs=("input_ids",)
    )
    (folder / BUNDLE_FILE).write_bytes(bundle.to_bytes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed index of one shard with files of every kind; most mapped files have several pages."""
    folder = tmp_path_factory.mktemp("forged")
    make_learned_bundle(folder / "bundle")
    rng = np.random.default_rng(5)
    corpus = {}
    for i in range(1500):
        terms, impacts = rng.choice(V, 12, replace=False), np.sort(rng.integers(1, 256, 12))[::-1]
        stored = {"year": str(1900 + i % 120), "lang": ["en", "de", None][i % 3]}
        weights = {int(t): int(x) for t, x in zip(terms, impacts, strict=True)}
        corpus[f"document/{i:06d}"] = Doc(weights, f"text {i % 50} of document number {i}", stored)
    types = {"year": "int64", "lang": "string"}
    settings = {"bundle": folder / "bundle", "attributes": types, "bm25": True}
    build(folder / "index", corpus, deleted=[*corpus][::97], **settings)
    delete_documents(folder / "index", ["document/000003"])
    return folder / "index"


def asks() -> list[Callable[[Searcher], Any]]:
    """Return calls that together read every page of every file that answers depend on."""
    everything = dict.fromkeys(range(V), 1.0)
    ids = [f"document/{i:06d}" for i in range(0, 1500, 3)]
    mixed: dict[str, Any] = {"text": "text 17 of document number", "hybrid": Hybrid(words=0.5)}
    return [
        lambda s: s.search_vector(everything, 10_000).hits,
        lambda s: s.search_vector(everything, 10, rescore=2_000, qk=3).hits,
        lambda s: s.search_vector(everything, 10, filter=(field("year") >= 1950) & ~field("lang").is_null()).hits,
        lambda s: s.search_vector({1: 1.0}, 10_000, **mixed).hits,
        lambda s: s.search("t1 t2 t3", 20).hits,
        lambda s: s.get(ids),
        lambda s: [s.document_frequency(term) for term in range(V)],
        lambda s: s.bm25("document 17", 5, fields=["text"]).hits,
        lambda s: sorted(s.match_boolean("number AND 17")),
        lambda s: s.explain({1: 1.0, 2: 2.0}, "document/000123"),
    ]


def unread(name: str) -> bool:
    """Return whether no query depends on a file: builders and ``verify=True`` verify it."""
    return name.endswith("/shard.json") or name.startswith("takedowns/")


def change_bytes(path: Path) -> None:
    """Change four bytes of a file, and four more so that a CRC-32 does not find it."""
    size = path.stat().st_size
    at = size // 2 if size < 1 << 16 else 1 << 15
    old = path.read_bytes()[at - 2 * PATCH : at - PATCH]
    forge_file(path, at - 2 * PATCH, bytes(byte ^ 1 for byte in old), free=at)


def delete(path: Path) -> None:
    if path.parent.name == "publications":
        pytest.skip("a reader that starts later cannot know that there was a newer publication")
    path.unlink()


def swap_pages(path: Path) -> None:
    """Exchange two whole pages in the middle of a file, each of which keeps its digest."""
    data = path.read_bytes()
    whole = len(data) // PAGE
    at = (whole // 2 - 1) * PAGE
    one, two = data[at : at + PAGE], data[at + PAGE : at + 2 * PAGE]
    if whole < 2 or one == two:
        pytest.skip("the file has less than two whole pages")
    path.write_bytes(data[:at] + two + one + data[at + 2 * PAGE :])


def change_with_list(path: Path) -> None:
    """Change a page, and the digest of the page in the list."""
    change_bytes(path)
    write_list(path)


def change_with_manifest(path: Path) -> None:
    """Change a page, the list of digests, and the manifest in the folder of the shard."""
    change_with_list(path)
    folder = next(parent for parent in path.parents if (parent / "shard.json").exists())
    manifest = ShardManifest.from_json(json.loads((folder / "shard.json").read_bytes()))
    files = tuple(file for file in digest_folder(folder) if file.path != "shard.json")
    (folder / "shard.json").write_bytes(record_bytes(replace(manifest, files=files).to_json()))


def write_list(path: Path) -> None:
    folder = next((parent for parent in path.parents if (parent / "shard.json").exists()), None)
    name = "" if folder is None else path.relative_to(folder).as_posix()
    if folder is None or not is_mapped(name):
        pytest.skip("the file has no pages in a list")
    mapped = [file.path for file in digest_folder(folder) if is_mapped(file.path)]
    (folder / PAGE_DIGESTS_FILE).write_bytes(page_digests(folder, mapped))


FORGERIES: list[Callable[[Path], Any]] = [
    change_bytes,
    lambda path: path.write_bytes(path.read_bytes() + b"\0" * PATCH),
    lambda path: path.write_bytes(path.read_bytes()[:-PATCH]),
    delete,
    swap_pages,
    change_with_list,
    change_with_manifest,
]
NAMES = ["bytes", "extended", "truncated", "deleted", "pages swapped", "page and list", "page, list and manifest"]


@pytest.fixture(scope="module")
def expected(whole: Path) -> list[Any]:
    searcher = Searcher.open(whole)
    return [ask(searcher) for ask in asks()]


def files_of(index: Path) -> list[str]:
    return sorted(path.relative_to(index).as_posix() for path in index.rglob("*") if path.is_file())


@pytest.mark.parametrize("forge", FORGERIES, ids=NAMES)
def test_forged_file_of_any_kind_is_refused(whole, expected, forge, tmp_path):
    wrong, accepted = [], []
    names = [name for name in files_of(whole) if not outdated(whole, name)]
    assert len(names) > 20
    for name in names:
        index = tmp_path / "index"
        shutil.copytree(whole, index)
        try:
            forge(index / name)
        except pytest.skip.Exception:
            shutil.rmtree(index)
            continue
        refused, given = answers(index)
        wrong += [(name, number) for number, answer in given.items() if answer != expected[number]]
        if not refused and not unread(name):
            accepted.append(name)
        shutil.rmtree(index)
    assert wrong == []
    assert accepted == []


def outdated(index: Path, name: str) -> bool:
    """Return whether the version does not have a file."""
    sha = current_publication(index).version
    version = IndexVersion.from_json(json.loads((index / "versions" / f"{sha}.json").read_bytes()))
    kept = {one.file.path for one in version.tombstones if one is not None}
    if name.startswith("tombstones/"):
        return name not in kept
    if name.startswith("versions/"):
        return name != f"versions/{sha}.json"
    return name.endswith(".lock") or name == "publications/000001.json"


def answers(index: Path) -> tuple[bool, dict[int, Any]]:
    """Return whether anything was refused, and what was answered, by number of the call."""
    refused, given = False, {}
    try:
        searcher = Searcher.open(index)
    except (ArtifactError, SignatureError):
        return True, {}
    for number, ask in enumerate(asks()):
        try:
            given[number] = ask(searcher)
        except ArtifactError:
            refused = True
    return refused, given


def test_page_is_hashed_at_most_once_per_process(whole, monkeypatch):
    hashed: list[int] = []

    class Counted(PageDigests):
        def fits(self, number: int, page: bytes | memoryview) -> bool:
            hashed.append(number)
            return super().fits(number, page)

    monkeypatch.setattr(pages, "PageDigests", Counted)
    searcher = Searcher.open(whole)
    opened = len(hashed)
    searcher.search_vector({1: 1.0}, 1)
    first = len(hashed)
    for _ in range(2):
        for ask in asks():
            ask(searcher)
    every = sum(
        -(-file.size // PAGE) for shard in searcher.version.shards for file in shard.files if is_mapped(file.path)
    )
    assert len(hashed) == len(set(hashed)) <= every
    assert opened < first < every * 3 / 4
