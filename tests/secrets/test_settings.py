"""A secret in a setting that takes a location, an address or an option is refused, and is not repeated."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from lsr_prod.cluster.address import check_address
from lsr_prod.config import Deployment, load_deployment
from lsr_prod.errors import ConfigError
from tests.secrets.canaries import canary, leaks

FORMS = (
    "s3://key:{}@bucket/folder",
    "https://user:{}@host.example/x",
    "az://container/folder?sv=1&sig={}&se=2",
    "s3://bucket/folder?X-Amz-Signature={}",
    "ftp://user:{}@host.example/x",
)
CREDENTIALS = (
    "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_sse_customer_key_base64",
    "azure_client_secret", "azure_storage_account_key", "azure_storage_sas_key", "azure_storage_token", "account_key",
    "google_bearer_token", "google_service_account_key", "password", "my_secret", "sas_token",
    "token", "secret_key",
)  # fmt: skip
URLS = ("aws_endpoint", "azure_endpoint", "google_base_url", "proxy_url", "aws_metadata_endpoint", "endpoint_url")
PAIRS = {"data": {"paths": ["pairs.jsonl"], "kind": "pairs"}}
WHOLE: dict[str, Any] = {
    "source": {"paths": ["a"]},
    "encode": {"bundle": "a", "table": "b"},
    "index": {"bundle": "a", "table": "b", "output": "c"},
    "evaluate": {"index": "a", "queries": "b", "qrels": "c"},
    "export": {"model": "a", "output": "b"},
    "mine": {**PAIRS, "index": "a", "output": "b", "text_fields": ["text"]},
    "score": {"data": dict(PAIRS["data"]), "teacher": {"model": "a"}, "output": "b"},
    "maintain": {"table": "a"},
    "vectors": {"action": "import", "table": "a", "bundle": "b", "format": "jsonl", "paths": ["c"]},
    "serve": {"index": "a"},
    "click_set": {"paths": ["a"], "output": "b"},
    "sweep": {
        "models": [{"name": "a", "bundle": "b"}],
        "collections": [{"name": "a", "corpus": "b", "queries": "c", "qrels": "d"}],
        "output": "e",
    },
    "tune": {"index": "a", "queries": "b", "qrels": "c"},
    "gates": {},
    "report": {"output": "a"},
    "train": {
        "model": "a",
        "output": "b",
        "work": "c",
        "stages": [{**PAIRS, "steps": 1, "objective": {"losses": [{"loss": "info_nce"}]}}],
    },
}


def locations(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every setting of a section, and of the sections in it, that is a location."""
    for name, info in model.model_fields.items():
        for section in (info.annotation, *get_args(info.annotation)):
            if isinstance(section, type) and issubclass(section, BaseModel):
                yield from locations(section, (*path, name))
        if re.search(r"function _checked ", repr((info.annotation, info.metadata))):
            yield (*path, name)


LOCATIONS = sorted(locations(Deployment))


def message(tmp_path: Path, path: tuple[str, ...], value: Any) -> str:
    """Return what is said about a deployment with this value of one setting."""
    content = deepcopy(WHOLE)
    place = content
    for name in path[:-1]:
        place = place.setdefault(name, {})
        place = place[0] if isinstance(place, list) else place
    place[path[-1]] = value
    file = tmp_path / "deployment.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError) as raised:
        load_deployment(["--config", str(file)], job="job", description="", needs=tuple(content))
    field = re.sub(r"\.\d+", "", raised.value.field)  # without places in lists
    assert field.startswith(".".join(path)), raised.value
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_deployment_of_these_tests_is_valid_and_has_all_kinds_of_locations(tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump(WHOLE))
    load_deployment(["--config", str(tmp_path / "whole.yaml")], job="job", description="", needs=tuple(WHOLE))
    names = {".".join(path) for path in LOCATIONS}
    assert names >= {"source.paths", "encode.table", "index.output", "train.work", "mine.data.paths", "serve.index"}
    assert len(names) > 30


# All forms in one location, and one form in each other.
@pytest.mark.parametrize(
    ("path", "form"),
    [
        *((("encode", "table"), form) for form in FORMS),
        *((path, FORMS[number % len(FORMS)]) for number, path in enumerate(LOCATIONS)),
    ],
)
def test_secret_in_a_location_is_not_repeated(path: tuple[str, ...], form: str, tmp_path: Path) -> None:
    secret = canary("location")
    value = form.format(secret)
    said = message(tmp_path, path, [value] if path[-1] in ("paths", "indexes") else value)
    assert not leaks([(said, b"")], {"location": secret}), said


@pytest.mark.parametrize(
    ("name", "form"), [*((name, "{}") for name in CREDENTIALS), *zip(URLS, FORMS * 2, strict=False)]
)
def test_secret_in_an_option_of_the_store_is_not_repeated(name: str, form: str, tmp_path: Path) -> None:
    secret = canary("option")
    said = message(tmp_path, ("storage", "options", name), form.format(secret))
    assert not leaks([(said, b"")], {"option": secret}), said


def test_secret_in_an_address_is_not_repeated() -> None:
    for form in ("ray://user:{}@127.0.0.1:1", "http://user:{}@host:8265", "//user:{}@127.0.0.1:1"):
        secret = canary("address")
        with pytest.raises(ConfigError) as raised:
            check_address(form.format(secret), token=True)
        assert not leaks([(str(raised.value), b"")], {"address": secret}), raised.value
