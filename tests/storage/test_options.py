"""Options of object stores: names, aliases and values are validated before any request."""

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from obstore.store import from_url

from lsr_prod.config import load_deployment
from lsr_prod.encoding.tables import open_table
from lsr_prod.errors import ConfigError, StorageError
from lsr_prod.storage import Store
from lsr_prod.storage import location as module
from lsr_prod.storage.location import is_client_option, normalize_options, options_of


@pytest.mark.parametrize(
    "given",
    [
        {"allow_http": "true", "aws_endpoint": "http://h:9000"},
        {"aws_allow_http": True, "AWS_ENDPOINT_URL": "http://h:9000"},
        {"ALLOW_HTTP": "True", "endpoint_url": "http://h:9000"},
        {"AWS_ALLOW_HTTP": 1, "aws_endpoint": "http://h:9000", "AWS_ENDPOINT": "http://h:9000"},
    ],
)
def test_spellings_of_an_option_are_one_option(given: dict[str, object]) -> None:
    assert normalize_options(given) == {"allow_http": "true", "aws_endpoint": "http://h:9000"}
    assert Store("s3://b/x", given) == Store("s3://b/x", normalize_options(given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"aws_regoin": "eu"}, "aws_regoin", "there is no such option; did you mean aws_region?"),
        ({"nonsense": "1"}, "nonsense", "there is no such option; docs/object-stores.md lists the options"),
        ({"allow_http": "banana"}, "allow_http", "'banana' is not possible; give true or false"),
        ({"aws_skip_signature": 2}, "aws_skip_signature", "'2' is not possible; give true or false"),
        ({"timeout": 30}, "timeout", "'30' is not possible; give a number and a unit, such as 30s or 2m"),
        ({"pool_max_idle_per_host": "x"}, "pool_max_idle_per_host", "give a whole number"),
        ({"aws_endpoint": "localhost:9000"}, "aws_endpoint", "give a URL such as https://"),
        ({"aws_endpoint": "https://h:port"}, "aws_endpoint", "give a URL such as https://"),
        ({"aws_endpoint": "https://key:hunter2@h"}, "aws_endpoint", "the URL contains credentials"),
        ({"proxy_url": "https://u:hunter2@h"}, "proxy_url", "the URL contains credentials"),
        ({"proxy_url": "u:hunter2@h:3128"}, "proxy_url", "the URL contains credentials"),
        ({"proxy_url": "http://u:hun/ter2@h"}, "proxy_url", "the URL contains credentials"),
        ({"azure_endpoint": "https://h/?sv=1&sig=hunter2"}, "azure_endpoint", "the URL contains credentials"),
        ({"aws_endpoint": "http://h"}, "allow_http", "aws_endpoint is http://h, but connections without TLS"),
        ({"google_base_url": "http://h"}, "allow_http", "set it to true"),
        ({"aws_region": "a", "region": "b"}, "region", "it contradicts aws_region"),
        ({"aws_region": ""}, "aws_region", "leave the option out"),
        ({"user_agent": "a\nb"}, "user_agent", "text in one line"),
        ({"aws_conditional_put": "disabled"}, "aws_conditional_put", "give etag, or leave it out"),
        ({"aws_secret_access_key": "hunter2"}, "aws_secret_access_key", "it is a credential"),
        ({"AWS_TOKEN": "hunter2"}, "AWS_TOKEN", "it is a credential"),
        ({"sas_key": "hunter2"}, "sas_key", "it is a credential"),
        ({"my_password": "hunter2"}, "my_password", "it is a credential"),
    ],
)
def test_wrong_option_is_one_config_error(tmp_path: Path, options: dict[str, object], field: str, words: str) -> None:
    import yaml

    (tmp_path / "d.yaml").write_text(yaml.safe_dump({"storage": {"options": options}}))
    with pytest.raises(ConfigError) as raised:
        load_deployment(["--config", str(tmp_path / "d.yaml")], job="lsr-prod", description="", needs=())
    assert raised.value.field == f"storage.options.{field}"
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_option_on_the_command_line_is_validated(tmp_path: Path) -> None:
    argv = ["--storage.options", '{"aws_alow_http": "true"}']
    with pytest.raises(ConfigError, match=r"storage\.options\.aws_alow_http: .* did you mean aws_allow_http\?"):
        load_deployment(argv, job="lsr-prod", description="", needs=())


def test_options_of_yaml_types_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(
        "storage: {options: {aws_allow_http: true, aws_endpoint: 'http://h', timeout: 5s}}"
    )
    found = load_deployment(["--config", str(tmp_path / "d.yaml")], job="lsr-prod", description="", needs=())
    assert found.storage.options == {"allow_http": "true", "aws_endpoint": "http://h", "timeout": "5s"}


def test_each_store_gets_the_options_that_it_understands() -> None:
    options = normalize_options(
        {"aws_region": "eu", "account_name": "a", "base_url": "https://g", "timeout": "5s", "endpoint": "https://e"}
    )
    assert options_of("s3://b", options) == {"aws_region": "eu", "timeout": "5s", "aws_endpoint": "https://e"}
    assert options_of("gs://b", options) == {"google_base_url": "https://g", "timeout": "5s"}
    azure = {"azure_storage_account_name": "a", "timeout": "5s", "azure_endpoint": "https://e"}
    assert options_of("az://b", options) == options_of("abfss://b@a.dfs.core.windows.net", options) == azure
    assert Store("az://b", options).delta_options == {name.upper(): value for name, value in azure.items()}


_VALUES = {"flag": "true", "duration": "5s", "count": "3", "url": "https://127.0.0.1:1", "text": "some-text"}
_FILES = {"google_application_credentials", "google_service_account"}  # obstore opens these files


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_obstore_knows_every_option(scheme: str) -> None:
    prefix = module._PREFIXES[scheme]
    known = {name: kind for name, kind in module._SETTINGS.items() if name.startswith(prefix) or name in module._CLIENT}
    needed = {"azure_storage_account_name": "a"} if scheme == "az" else {}
    for name, kind in known.items():
        if name in _FILES:
            continue
        value = _VALUES[kind] if isinstance(kind, str) else kind[0]
        given = options_of(f"{scheme}://b", normalize_options({**needed, name: value}))
        client = {key: one for key, one in given.items() if is_client_option(key)}
        from_url(f"{scheme}://b", config={k: v for k, v in given.items() if k not in client}, client_options=client)


class _Forbidden(BaseHTTPRequestHandler):
    """Answers every request as a service does that does not accept the credentials."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815 (name of the base class)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def forbidden() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forbidden)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [("s3://b/x", "aws_endpoint"), ("gs://b/x", "google_base_url"), ("az://b/x", "azure_endpoint")],
)
def test_refused_credentials_are_one_storage_error(uri: str, endpoint: str, forbidden: str) -> None:
    options = {endpoint: forbidden, "allow_http": True, "skip_signature": True, "azure_storage_account_name": "a"}
    store = Store(uri, options)  # type: ignore[arg-type]
    for act in (lambda: store.get("x"), lambda: store.names(), lambda: open_table(store, None)):
        with pytest.raises(StorageError, match=forbidden) as raised:
            act()
        for part in ("\n", "\x1b", "Debug source"):
            assert part not in str(raised.value)


def test_unreachable_endpoint_is_one_storage_error(closed_port: int) -> None:
    store = Store("s3://b/x", {"aws_endpoint": f"http://127.0.0.1:{closed_port}", "allow_http": "true"})
    with pytest.raises(StorageError, match=f"127.0.0.1:{closed_port}") as raised:
        store.get("x")
    assert "\n" not in str(raised.value)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port on which nothing listens: bound, so that no other process takes it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def test_wrong_bucket_is_one_storage_error(s3_options: dict[str, str]) -> None:
    store = Store("s3://no-such-bucket/x", s3_options)
    for act in (lambda: store.put_new("a", b""), lambda: store.names(), lambda: open_table(store)):
        with pytest.raises(StorageError) as raised:
            act()
        assert "\n" not in str(raised.value)
        assert "\x1b" not in str(raised.value)


def test_panic_of_a_library_is_a_storage_error(tmp_path: Path) -> None:
    """An endpoint in the environment is not validated by us; without a scheme, obstore panics (a BaseException)."""
    code = """
import sys
from lsr_prod.errors import StorageError
from lsr_prod.storage import Store
from lsr_prod.encoding.tables import open_table
for act in (lambda s: s.get("x"), lambda s: s.names(), open_table):
    try:
        act(Store("s3://b/x"))
    except StorageError as error:
        assert "\\n" not in str(error)
        print("refused")
"""
    environment = {"AWS_ENDPOINT": "localhost:9000", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.split() == ["refused"] * 3, done.stderr
    assert time.monotonic() - began < 60


def test_names_of_existing_folders_are_not_read_as_syntax_of_a_url(s3_options: dict[str, str], tmp_path: Path) -> None:
    for name in ("a%20b", "a b", "a?b", "ü"):
        Store(f"s3://lsr/{tmp_path.name}", s3_options).put_new(f"{name}/x", name.encode())
        assert Store(f"s3://lsr/{tmp_path.name}/{name}", s3_options).get("x") == name.encode()


def test_options_are_not_shown(tmp_path: Path) -> None:
    store = Store("s3://b/x", {"aws_access_key_id": "hunter2", "aws_secret_access_key": "hunter2"})
    assert "hunter2" not in repr(store)


def test_documentation_has_every_option_and_valid_examples(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "object-stores.md").read_text()
    table = text.partition("## Options")[2].partition("## Examples")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == module._KINDS.keys() - module._SHARED.keys() - module._CREDENTIALS
    for example in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        (tmp_path / "d.yaml").write_text(example)
        load_deployment(["--config", str(tmp_path / "d.yaml")], job="lsr-prod", description="", needs=())
