"""Every option of a call changes the answer or is refused, and every value is valid or refused with a sentence."""

import datetime as dt
import inspect
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsr_prod.errors import ConfigError, LsrError, QueryError
from lsr_prod.search import Hybrid, ParallelSearcher, Searcher, field, filter_from_json, text_query
from lsr_prod.search.open_settings import OpenSettings
from lsr_prod.search.query.search_request import Options, Request
from lsr_prod.search.query.sparse_query import required_terms
from tests.indexing.corpus import Doc, make_index
from tests.search.oracle import at_least, brute_force
from tests.search.test_array_search import batch

V = 12
CORPUS = {
    f"d{i:02}": Doc({t: 1 + (i * t) % 250 for t in range(V) if (i + t) % 3}, f"word{i % 4} lock", {"year": str(i % 7)})
    for i in range(40)
}
# A value of each option that differs from its default.
GIVEN: Mapping[str, Any] = {
    "overlap_threshold": 0.9,
    "min_terms": 3,
    "qk": 1,
    "query_mass": 0.2,
    "filter": field("year") == 3,
    "min_score": 500.0,
    "scan_share": 0.1,
    "rescore": 40,
    "deduplicate": "year",
    "deadline_ms": 0,
    "count": True,
    "fields": ["year"],
    "hybrid": Hybrid(),
    "offset": 2,
    "search_after": "token",
    "sort": "-year",
    "facets": ["year"],
    "facet_size": 3,
    "highlight": ["text"],
}
# Options that change a call; the call refuses the others.
READ: Mapping[str, frozenset[str]] = {
    "search_vector": frozenset(GIVEN) - {"facet_size"},  # without facets
    "search_arrays": frozenset(
        ("overlap_threshold", "min_terms", "qk", "filter", "min_score", "scan_share", "offset", "deadline_ms")
    ),
    "count": frozenset(("overlap_threshold", "min_terms", "qk", "query_mass", "filter", "hybrid", "deadline_ms")),
    "bm25": frozenset(("count", "fields")),
    "explain": frozenset(("qk", "hybrid")),
}
VECTOR = {0: 1.0, 1: 3.0, 2: 3.0}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options") / "index"
    make_index(folder, CORPUS, vocabulary_size=V, shards=3, bm25=True, dk=6, attributes={"year": "int64"})
    return folder


@pytest.fixture(scope="module")
def searcher(index: Path) -> Searcher:
    return Searcher.open(index)


def calls(searcher: Searcher) -> dict[str, Callable[..., Any]]:
    """Calls that take options, and return everything that an option may change."""

    def vector(**options: Any) -> Any:
        if options.get("search_after") == "token":
            options["search_after"] = searcher.search_vector(VECTOR, 10).next_page
        found = searcher.search_vector(VECTOR, 10, text="lock" if "hybrid" in options else None, **options)
        return found.hits, found.matched_exact, found.partial, found.facets

    def arrays(**options: Any) -> Any:
        found = searcher.search_arrays(*batch([VECTOR]), 10, **options)
        return found.doc_ids(), found.scores.tolist(), found.partial

    def count(**options: Any) -> Any:
        return searcher.count(VECTOR, text="lock" if "hybrid" in options else None, **options)

    def bm25(**options: Any) -> Any:
        found = searcher.bm25("word1", 3, **options)
        return found.hits, found.matched_exact

    def explain(**options: Any) -> Any:
        return searcher.explain(VECTOR, "d01", text="lock" if "hybrid" in options else None, **options)

    return {"search_vector": vector, "search_arrays": arrays, "count": count, "bm25": bm25, "explain": explain}


def test_every_option_has_a_value_here() -> None:
    assert GIVEN.keys() == Options.__annotations__.keys()
    assert GIVEN.keys() == {name for name in inspect.signature(Request).parameters if name != "k"}


@pytest.mark.parametrize("call", READ)
@pytest.mark.parametrize("name", GIVEN)
def test_option_changes_the_answer_or_is_refused(searcher: Searcher, call: str, name: str) -> None:
    ask = calls(searcher)[call]
    if name == "count" and name in READ[call]:
        assert ask(count=True) == ask()  # every match is counted in any case, except where lists are fused
        return
    if name in READ[call]:
        assert ask(**{name: GIVEN[name]}) != ask()
        return
    with pytest.raises(QueryError, match=name):
        ask(**{name: GIVEN[name]})


@pytest.mark.parametrize(("mass", "kept"), [(0.5, [1, 2]), (0.4, [1]), (0.9, [0, 1, 2]), (1.0, [0, 1, 2])])
def test_query_mass_searches_with_the_fewest_terms_that_hold_it(
    searcher: Searcher, mass: float, kept: list[int]
) -> None:
    found = searcher.search_vector(VECTOR, 10, query_mass=mass)
    assert found.hits == searcher.search_vector({term: VECTOR[term] for term in kept}, 10).hits
    assert len(found.query) == len(kept)
    plain = searcher.search_vector(VECTOR, 10, query_mass=mass, fields=["year"]).hits
    assert [(hit.doc_id, hit.score) for hit in plain] == [(hit.doc_id, hit.score) for hit in found.hits]


def test_count_is_exact_where_lists_are_fused(searcher: Searcher) -> None:
    fused = {"text": "word1", "hybrid": Hybrid(fusion="rrf")}
    guess, exact = (searcher.search_vector(VECTOR, 10, count=count, **fused) for count in (False, True))
    assert (guess.matched_exact, exact.matched_exact) == (False, True)
    assert guess.hits == exact.hits
    assert exact.matched == searcher.count(VECTOR, text="word1", hybrid=Hybrid()) >= guess.matched


def test_arrays_accept_defaults_of_options_that_they_do_not_support(searcher: Searcher) -> None:
    defaults = {name: getattr(Request(), name) for name in GIVEN}
    assert searcher.search_arrays(*batch([VECTOR]), 3, **defaults).numbers.tolist() == [3]


@pytest.mark.parametrize("option", [{"facet_size": 3}, {"hybrid": Hybrid(), "rescore": 40}])
def test_options_that_exclude_each_other_are_refused(searcher: Searcher, option: dict[str, Any]) -> None:
    with pytest.raises(QueryError):
        searcher.search_vector(VECTOR, text="lock" if "hybrid" in option else None, **option)


@pytest.mark.parametrize("settings", [{"constant": 1.0}, {"depth": 50}])
def test_settings_of_rank_fusion_are_refused_without_it(settings: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match="fusion='rrf'"):
        Hybrid(**settings)
    assert Hybrid(fusion="rrf", **settings).fusion == "rrf"


def test_text_is_refused_with_a_query_that_is_a_text(searcher: Searcher) -> None:
    for call in (lambda: searcher.count("lock", text="x"), lambda: searcher.explain("lock", "d01", text="x")):
        with pytest.raises(QueryError, match="text= belongs to a vector"):
            call()


@pytest.mark.parametrize("name", ["treshold", "overlap_treshold", "filters", "top_k"])
def test_unknown_option_of_a_search_names_the_one_that_was_meant(searcher: Searcher, name: str) -> None:
    asks: list[Callable[..., Any]] = [*calls(searcher).values(), lambda **odd: searcher.search("lock", **odd)]
    asks += [lambda **odd: searcher.search("lock", **odd, filter=field("year") == 3)]
    for ask in asks:
        with pytest.raises(QueryError, match=f"has no option '{name}'"):
            ask(**{name: 1})
    with pytest.raises(QueryError, match=r"did you mean filter\?"):
        searcher.search_vector(VECTOR, filters=None)  # type: ignore[call-arg]
    with pytest.raises(QueryError, match=r"explain has no option 'hybird'; did you mean hybrid\?"):
        searcher.explain(VECTOR, "d01", hybird=Hybrid())  # type: ignore[arg-type]


# --- Searcher.open -------------------------------------------------------------------------------------------------

WRONG_SETTINGS: list[tuple[str, Any]] = [
    *(("verify", value) for value in ("x", "", None, 0, 1, "LAZY", [], b"lazy", np.array([1, 2]))),
    *(("encoder_threads", value) for value in (0, -1, None, 1.0, "2", True, 1 << 20, 10**5000, math.nan)),
    *(("publication", value) for value in ("1", 0, -1, True, 1.0, [], 10**5000)),
    *(("cache_bytes", value) for value in (0, -1, "1", 1.5, True)),
    *(("cache", value) for value in (3, "", b"x", [], "a\0b", "\udfff\ud800")),
    *(("bundle", value) for value in (3, "", b"x", {}, "a\0b")),
    *(("observer", value) for value in (3, "x", object(), print)),
    *(("storage_options", value) for value in (3, "x", ["a"], {"a": 3}, {3: "a"})),
    *(("max_query_bytes", value) for value in (0, None, "x", 1 << 40, 10**5000, True)),
]


@pytest.mark.parametrize("cls", [Searcher, ParallelSearcher])
def test_setting_of_open_with_wrong_value_is_refused(cls: type[Searcher], index: Path) -> None:
    assert {name for name, _ in WRONG_SETTINGS} == OpenSettings.__annotations__.keys()
    for name, value in WRONG_SETTINGS:
        with pytest.raises(ConfigError) as caught:
            cls.open(index, **{name: value})
        assert (caught.value.field, len(str(caught.value)) < 300) == (name, True), (name, value)


@pytest.mark.parametrize("place", [None, 3, "", b"index", [], Path, "a\0b", "\ud800", 1.5])
def test_place_that_is_no_index_is_refused(place: Any) -> None:
    with pytest.raises(LsrError):
        Searcher.open(place)


@pytest.mark.parametrize("cls", [Searcher, ParallelSearcher])
def test_unknown_setting_of_open_names_the_one_that_was_meant(cls: type[Searcher], index: Path) -> None:
    with pytest.raises(ConfigError, match=r"verfiy: open has no such setting; did you mean verify\?"):
        cls.open(index, verfiy=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it has: bundle, "):
        cls.open(index, nothing_like_it=True)  # type: ignore[arg-type]


def test_settings_of_a_searcher_that_is_not_opened_by_open_are_validated(searcher: Searcher) -> None:
    with pytest.raises(ConfigError, match="encoder_threads"):
        Searcher(searcher.snapshot, encoder_threads=0)
    with pytest.raises(TypeError, match="cache"):  # a setting of open is not ignored
        Searcher(searcher.snapshot, cache="folder")  # type: ignore[call-arg]


# --- arrays against brute force ------------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=25)
@given(
    impacts=st.lists(st.dictionaries(st.integers(0, 5), st.integers(1, 3), max_size=4), min_size=1, max_size=9),
    shards=st.integers(1, 4),
    step=st.sampled_from([0.02, 1e-40, 1e-45]),
    queries=st.lists(
        st.dictionaries(st.integers(0, 5), st.sampled_from([0.0, 1e-45, 1e-20, 0.5, 1.0, 2.0]), max_size=6), max_size=4
    ),
    k=st.integers(0, 6),
    offset=st.integers(0, 3),
    qk=st.sampled_from([None, 1, 2, 5]),
    threshold=st.sampled_from([0.0, 0.5]),
    min_score=st.sampled_from([0.0, 0.0, 1e-40, 1.0]),
)
def test_arrays_and_vectors_equal_brute_force_also_where_scores_underflow(
    impacts: list[dict[int, int]],
    shards: int,
    step: float,
    queries: list[dict[int, float]],
    k: int,
    offset: int,
    qk: int | None,
    threshold: float,
    min_score: float,
) -> None:
    corpus = {f"d{len(impacts) - i}": Doc(terms) for i, terms in enumerate(impacts)}
    options: dict[str, Any] = {"qk": qk, "overlap_threshold": threshold, "offset": offset, "min_score": min_score}
    with tempfile.TemporaryDirectory() as folder:
        make_index(Path(folder), corpus, vocabulary_size=6, shards=shards, step=step)
        searcher = Searcher.open(folder)
        arrays = searcher.search_arrays(*batch(queries), k, **options)
        assert arrays.scores.shape == arrays.documents.shape == arrays.overlaps.shape == (len(queries), k)
        for at, (vector, names) in enumerate(zip(queries, arrays.doc_ids(), strict=True)):
            size = min(sum(np.float32(weight) > 0 for weight in vector.values()), qk or 6)
            required = required_terms(size, overlap_threshold=threshold, min_terms=1)
            expected = brute_force(corpus, vector, required, step=step, qk=qk) if size else []
            expected = at_least(expected, min_score)[offset : offset + k]
            hits = searcher.search_vector(vector, k, **options).hits
            assert [(hit.doc_id, hit.score, hit.overlap) for hit in hits] == expected
            number = int(arrays.numbers[at])
            rows = zip(names, arrays.scores[at, :number].tolist(), arrays.overlaps[at, :number].tolist(), strict=True)
            assert list(rows) == expected
            assert not arrays.scores[at, number:].any()
            assert (arrays.documents[at, number:] == -1).all()


@pytest.mark.parametrize(
    "vector", [{1: 1.0, 2: math.nan}, {1: 1.0, 2: -1.0}, {1: 1.0, V: 0.5}, {1: 3e38, 2: 2e38}, {1: 1.0, -1: 0.1}]
)
def test_terms_that_qk_leaves_out_are_validated_too(searcher: Searcher, vector: dict[int, float]) -> None:
    with pytest.raises(QueryError, match="query 1: "):
        searcher.search_arrays(*batch([{1: 1.0}, vector]), qk=1)
    twice = (np.array([0, 3]), np.array([1, 2, 2], np.int32), np.array([1, 0.5, 0.5], np.float32))
    with pytest.raises(QueryError, match="given twice"):
        searcher.search_arrays(*twice, qk=1)


# --- an index without documents, or with an empty shard ------------------------------------------------------------


@pytest.mark.parametrize("documents", [0, 1])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("cls", [Searcher, ParallelSearcher])
def test_every_option_answers_where_shards_are_empty(
    tmp_path: Path, documents: int, shards: int, cls: type[Searcher]
) -> None:
    corpus = {"a": Doc({1: 5}, "lock", {"year": "3"})} if documents else {}
    make_index(tmp_path, corpus, vocabulary_size=V, shards=shards, attributes={"year": "int64"}, bm25=True)
    searcher = cls.open(tmp_path)
    more = {"filter": field("year").is_null(), "sort": "year", "hybrid": Hybrid(fusion="rrf")}
    for options in (GIVEN, more):
        for name, value in options.items():
            if name in ("search_after", "facet_size"):
                continue
            text = "lock" if name == "hybrid" else None
            found = searcher.search_vector({1: 200.0}, 3, text=text, **{name: value})  # type: ignore[misc]
            assert len(found.hits) <= documents
            if name in READ["search_arrays"]:
                arrays = searcher.search_arrays(*batch([{1: 200.0}, {}]), 3, **{name: value})  # type: ignore[misc]
                assert arrays.doc_ids() == [[hit.doc_id for hit in found.hits], []]
    found = searcher.search_vector({1: 1.0}, sort="-year", facets=["year"], fields=["year"])
    assert [hit.fields["year"] for hit in found.hits] == [3] * documents
    assert found.facets[0].values == ((3, 1),) * documents
    assert searcher.search_arrays(*batch([{1: 1.0}]), 3).doc_ids() == [["a"] * documents]
    assert searcher.bm25("lock").matched == documents
    assert [row is not None for row in searcher.get(["a"])] == [bool(documents)]


# --- any value for any parameter -----------------------------------------------------------------------------------


class _Odd:
    """An object whose methods all fail."""

    def __repr__(self) -> str:
        return "odd"

    def __len__(self) -> int:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


ODD: list[Any] = [None, True, 0, -1, 3, 1 << 70, 10**5000, 0.5, math.nan, math.inf, "", "x", "\ud800", "a\0b", b"x"]
ODD += [[], [None], ["a", 3], (), {}, {"a": 1}, {1: "a"}, {None: 1.0}, set(), object(), len, dt.datetime(2020, 1, 1)]
ODD += [np.array([1, 2]), np.float32(2), np.str_("year"), field("year"), field("year") == 3, Hybrid(), 1j, ..., int]
ODD += ["x" * 100_000, ["text"] * 2_000, [[]], [["a"]], {"field": "year", "op": "eq", "value": [3]}]


def public_calls(searcher: Searcher) -> list[Callable[[Any], Any]]:
    """A call per parameter of the public methods."""
    arrays = batch([{1: 1.0}])
    named = [
        *(partial_option(searcher.search_vector, {1: 1.0}, name=name) for name in (*GIVEN, "k", "text")),
        *(partial_option(searcher.search_arrays, *arrays, name=name) for name in (*GIVEN, "k")),
        *(partial_option(searcher.count, {1: 1.0}, name=name) for name in (*GIVEN, "text")),
        *(partial_option(searcher.bm25, "lock", name=name) for name in ("k", "count", "fields")),
        *(partial_option(searcher.explain, {1: 1.0}, "d01", name=name) for name in ("qk", "hybrid", "text")),
        *(partial_option(searcher.follow, name=name) for name in ("jitter", "on_change")),
        partial_option(searcher.get, ["d01"], name="fields"),
        partial_option(searcher.match_terms, [1], name="required"),
    ]
    return [
        *named,
        searcher.search_vector,
        searcher.search_batch,
        lambda odd: searcher.search_batch([odd]),
        searcher.search,
        searcher.count,
        searcher.bm25,
        searcher.encode,
        lambda odd: searcher.encode([odd]),
        searcher.match_boolean,
        searcher.match_terms,
        lambda odd: searcher.match_terms([odd]),
        searcher.get,
        lambda odd: searcher.get([odd]),
        lambda odd: searcher.explain(odd, "d01"),
        lambda odd: searcher.explain({1: 1.0}, odd),
        searcher.document_frequency,
        searcher.document_frequencies,
        lambda odd: searcher.document_frequencies([odd], words=True),
        lambda odd: searcher.search_vector({1: odd}),
        *(lambda odd, at=at: searcher.search_arrays(*arrays[:at], odd, *arrays[at + 1 :]) for at in range(3)),
        lambda odd: searcher.search_vector({1: 1.0}, filter=text_query(odd)),
        lambda odd: searcher.search_vector({1: 1.0}, filter=filter_from_json(odd)),
        lambda odd: searcher.search_vector({1: 1.0}, filter=filter_from_json({"text": odd})),
        lambda odd: searcher.search_vector({1: 1.0}, filter=filter_from_json({"and": odd})),
        lambda odd: filter_from_json({"field": odd, "op": "eq", "value": 3}),
        lambda odd: filter_from_json({"field": "year", "op": odd, "value": 3}),
        lambda odd: filter_from_json({"field": "year", "op": "in", "value": odd}),
        lambda odd: searcher.search_vector({1: 1.0}, filter=field("year") == odd),
        lambda odd: field("year").is_in(odd),
        lambda odd: field("year").between(odd, odd),
        lambda odd: field("year").starts_with(odd),
        lambda odd: (field("year") == 3) & odd,
        field,
        *(lambda odd, name=name: Hybrid(**{name: odd}) for name in ("fusion", "terms", "words", "constant", "depth")),
    ]


def partial_option(call: Callable[..., Any], *positional: Any, name: str) -> Callable[[Any], Any]:
    return lambda odd: call(*positional, **{name: odd})


def test_no_value_of_any_parameter_raises_a_foreign_error(text_index: Path, index: Path) -> None:
    vectors, texts = Searcher.open(index), Searcher.open(text_index)
    refused: list[str] = []
    for searcher in (vectors, texts):
        for call in public_calls(searcher):
            if searcher is vectors and getattr(call, "__name__", "") in ("search", "encode"):
                continue  # its bundle has no encoder
            for odd in [*ODD, _Odd()]:
                try:
                    call(odd)
                except LsrError as error:
                    refused.append(str(error))
    assert len(refused) > 2_000
    assert all(10 < len(sentence) < 900 for sentence in refused)
