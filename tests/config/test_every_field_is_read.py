"""Every field of the settings is read by the code of a job: none is accepted and ignored."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from lsr_prod.config import Deployment

CODE = Path(__file__).parents[2] / "lsr_prod"


def sections(model: type[BaseModel]) -> set[type[BaseModel]]:
    """The model and those of its fields, also inside lists and unions."""
    found, todo = set[type[BaseModel]](), [model]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        found.add(one)
        kinds = [field.annotation for field in one.model_fields.values()]
        while kinds:
            kind = kinds.pop()
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                todo.append(kind)
            kinds += get_args(kind)
    return found


@pytest.fixture(scope="module")
def read() -> set[str]:
    """Names of all attributes that the code outside of the settings reads."""
    paths = [*CODE.rglob("*.py"), *CODE.with_name("lsr_prod_contrib").rglob("*.py")]
    code = [path.read_text(encoding="utf-8") for path in paths if path.parent.name != "config"]
    return set(re.findall(r"\.([a-z_0-9]+)\b(?!\()", "\n".join(code)))


@pytest.mark.parametrize("section", sorted(sections(Deployment), key=lambda one: one.__name__))
def test_every_field_is_read(section: type[BaseModel], read: set[str]) -> None:
    fields = set(section.model_fields) - {"kind"}  # the name of a union's member is read by its type
    ignored = {name for name in fields - read if not _read_by_its_model(section, name)}
    assert ignored == set()


def _read_by_its_model(section: type[BaseModel], name: str) -> bool:
    """Return whether a method of the settings hands the value on under another name."""
    module = (CODE / "config" / f"{section.__module__.rpartition('.')[2]}.py").read_text(encoding="utf-8")
    return re.search(rf"self\.{name}\b", module) is not None
