from typing import Any

import pytest
from pydantic import ValidationError

from lsr_prod.config.section import BatchSettings, TrainingDataSettings


def data(**settings: Any) -> TrainingDataSettings:
    return TrainingDataSettings(paths=["d"], **settings)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("pairs", ("query", "positive")),
        ("triples", ("query", "positive", "negative")),
        ("negatives", ("query", "positive", "negatives")),
        ("scores", ("query", "documents", "scores")),
        ("texts", ("text",)),
    ],
)
def test_each_kind_has_its_fields(kind: str, fields: tuple[str, ...]):
    assert data(kind=kind).fields == fields


def test_columns_map_field_names_to_columns_of_the_data():
    named = data(kind="pairs", columns={"positive": "pos"})
    assert [named.column(field) for field in named.fields] == ["query", "pos"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kind": "pairs", "columns": {"negative": "n"}}, "rows of kind pairs have query, positive, not negative"),
        ({"kind": "pairs", "columns": {"positive": ""}}, "give the name of the column of the data that holds positive"),
        ({"kind": "lists"}, "Input should be"),
        ({"kind": "pairs", "max_bad_fraction": 1.5}, "less than or equal to 1"),
        ({"kind": "pairs", "shuffle": True}, "Extra inputs are not permitted"),
    ],
)
def test_inconsistent_data_settings_are_refused(settings: dict[str, Any], problem: str):
    with pytest.raises(ValidationError, match=problem):
        data(**settings)


@pytest.mark.parametrize(("queries", "accumulate"), [(32, 5), (32, 32), (2, 2)])
def test_accumulate_must_split_batch_into_equal_parts_of_two_or_more_queries(queries: int, accumulate: int):
    with pytest.raises(ValidationError, match=f"the {queries} queries of a batch into equal parts of two or more"):
        BatchSettings(queries=queries, accumulate=accumulate)
    assert BatchSettings(queries=32, accumulate=16).accumulate == 16
