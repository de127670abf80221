"""A process that trusts keys reads only publications in the history that one of the keys signed."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lsr_prod.errors import ConfigError, MissingExtraError, SignatureError
from lsr_prod.indexing.publish import rollback
from lsr_prod.jobs.command import main
from lsr_prod.search import Searcher
from lsr_prod.storage import Store
from lsr_prod.storage.formats.digests import record_bytes
from lsr_prod.storage.formats.index_format import Publication, publication_name
from lsr_prod.storage.publications import current_publication, delete_publication, read_publication
from lsr_prod.storage.signatures import SIGNING_KEY, TRUSTED_KEYS, check_keys, sign
from tests.indexing.corpus import Doc, make_index
from tests.indexing.publishing import publish
from tests.indexing.remote import upload_current
from tests.storage.keys import KEYS, private, public


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SIGNING_KEY, raising=False)
    monkeypatch.delenv(TRUSTED_KEYS, raising=False)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the signing key and the trusted keys of this process."""

    def keys(signing: Ed25519PrivateKey | None, *trusted: Ed25519PrivateKey) -> None:
        monkeypatch.delenv(SIGNING_KEY, raising=False)
        monkeypatch.delenv(TRUSTED_KEYS, raising=False)
        if signing is not None:
            monkeypatch.setenv(SIGNING_KEY, private(signing))
        if trusted:
            monkeypatch.setenv(TRUSTED_KEYS, ",".join(map(public, trusted)))

    return keys


def build(index: Path, count: int = 1) -> list[str]:
    return [make_index(index, {"d": Doc({1: 1 + i})}, vocabulary_size=4).sha for i in range(count)]


def overwrite(index: Path, publication: Publication) -> None:
    (index / "publications" / publication_name(publication.number)).write_bytes(record_bytes(publication.to_json()))


def test_signed_publication_is_opened(tmp_path, use):
    use(KEYS[0], KEYS[0])
    build(tmp_path, 2)
    first, second = read_publication(tmp_path, 1), current_publication(tmp_path)
    assert second.signature is not None
    assert (first.previous, second.previous) == ("", first.sha)
    assert Searcher.open(tmp_path).publication == second


@pytest.mark.parametrize("signing", [None, KEYS[1]])
def test_publication_without_a_trusted_signature_is_refused(tmp_path, use, signing):
    use(signing)
    build(tmp_path)
    use(None, KEYS[0])
    with pytest.raises(SignatureError, match="is not signed" if signing is None else "is signed by") as raised:
        Searcher.open(tmp_path)
    assert "\n" not in str(raised.value)


def test_changed_publication_with_a_new_digest_is_refused(tmp_path, use):
    use(KEYS[0], KEYS[0])
    first, _ = build(tmp_path, 2)
    overwrite(tmp_path, replace(current_publication(tmp_path), version=first))
    with pytest.raises(SignatureError, match=r"signature of publication 2 by the key .* is wrong"):
        current_publication(tmp_path)


def test_publication_with_another_number_is_refused(tmp_path, use):
    """A superseded version cannot be made current by a copy of its publication."""
    use(KEYS[0], KEYS[0])
    build(tmp_path, 2)
    overwrite(tmp_path, replace(read_publication(tmp_path, 1), number=3))
    with pytest.raises(SignatureError, match=r"publication 3 by the key .* is wrong"):
        current_publication(tmp_path)


@pytest.mark.parametrize("value", ["", "?", "AAAA"])
def test_malformed_signature_is_refused(tmp_path, use, value):
    use(KEYS[0], KEYS[0])
    build(tmp_path)
    found = current_publication(tmp_path)
    overwrite(tmp_path, replace(found, signature=replace(found.signature, value=value)))
    with pytest.raises(SignatureError, match="is wrong"):
        current_publication(tmp_path)


def test_changed_history_is_refused(tmp_path, use):
    use(KEYS[0], KEYS[0])
    build(tmp_path, 2)
    overwrite(tmp_path, sign(replace(read_publication(tmp_path, 1), note="of another index")))
    with pytest.raises(SignatureError, match="history was changed"):
        current_publication(tmp_path)


def test_damaged_history_is_refused(tmp_path, use):
    use(KEYS[0], KEYS[0])
    build(tmp_path, 2)
    (tmp_path / "publications" / publication_name(1)).write_text("{}")
    with pytest.raises(SignatureError, match="history was changed"):
        current_publication(tmp_path)


def test_history_that_retention_shortened_is_read(tmp_path, use):
    use(KEYS[0], KEYS[0])
    build(tmp_path, 3)
    assert delete_publication(tmp_path, 2)
    assert [read_publication(tmp_path, number).number for number in (1, 3)] == [1, 3]


def test_unsigned_history_of_a_signed_publication_is_read(tmp_path, use):
    """Signing starts, and keys are replaced, in the middle of a history."""
    version = build(tmp_path)[0]
    old = Publication(1, version, "2026-01-01T00:00:00+00:00")
    overwrite(tmp_path, old)
    use(KEYS[1])
    build(tmp_path, 2)  # the first version is current already
    use(KEYS[0], KEYS[0], KEYS[1])
    assert rollback(tmp_path, 1).number == 3
    use(None, KEYS[0])
    assert read_publication(tmp_path, 1) == old
    assert [read_publication(tmp_path, number).signature is not None for number in (1, 2, 3)] == [False, True, True]
    overwrite(tmp_path, replace(old, note="changed"))
    with pytest.raises(SignatureError, match=r"before publication 2 .* history was changed"):
        read_publication(tmp_path, 1)


def test_publisher_with_trusted_keys_derives_nothing_from_a_planted_publication(tmp_path, use):
    versions = build(tmp_path, 2)
    use(KEYS[0], KEYS[0])
    for call in (lambda: publish(tmp_path, versions[0]), lambda: rollback(tmp_path, 1)):
        with pytest.raises(SignatureError, match="is not signed"):
            call()
    assert len(list((tmp_path / "publications").iterdir())) == 2


def test_reader_refuses_an_older_publication_after_newer_ones_were_removed(tmp_path, use):
    use(KEYS[0], KEYS[0])
    build(tmp_path, 2)
    searcher = Searcher.open(tmp_path)
    (tmp_path / "publications" / publication_name(2)).unlink()
    with pytest.raises(SignatureError, match="newer publications were removed"):
        searcher.refresh()
    assert searcher.publication.number == 2


def test_uploaded_publication_keeps_its_signature(tmp_path, use):
    use(KEYS[0], KEYS[0])
    build(tmp_path / "index")
    target = Store(str(tmp_path / "target"))
    upload_current(tmp_path / "index", target)
    use(None, KEYS[0])
    assert current_publication(target).signature is not None


def test_keys_made_by_openssl_are_read(monkeypatch):
    """The commands of docs/security.md."""

    def shell(command: str, given: str = "") -> str:
        return subprocess.run(["bash", "-c", command], input=given, text=True, capture_output=True, check=True).stdout

    key = shell("openssl genpkey -algorithm ed25519 -outform DER | base64 -w0")
    monkeypatch.setenv(SIGNING_KEY, key)
    known = shell("base64 -d | openssl pkey -inform DER -pubout -outform DER | base64 -w0", key)
    monkeypatch.setenv(TRUSTED_KEYS, known)
    check_keys()
    monkeypatch.setenv(SIGNING_KEY, shell("base64 -d | openssl pkey -inform DER", key))  # the lines of a PEM file
    check_keys()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (SIGNING_KEY, "", "it is empty"),
        (TRUSTED_KEYS, " ", "it is empty"),
        (SIGNING_KEY, "c2VjcmV0", "no ed25519 private key"),
        (SIGNING_KEY, "sëcret", "no ed25519 private key"),
        (SIGNING_KEY, public(KEYS[0]), "no ed25519 private key"),
        (TRUSTED_KEYS, f"{public(KEYS[0])},", "key 2 of 2 is no ed25519 public key"),
        (TRUSTED_KEYS, private(KEYS[0]), "key 1 of 1 is no ed25519 public key"),
    ],
)
def test_malformed_key_is_refused_without_quoting_it(monkeypatch, name, value, problem):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=problem) as raised:
        check_keys()
    assert len(value.strip()) < 2 or value not in str(raised.value)
    assert raised.value.__cause__ is None


def test_signing_key_that_is_not_trusted_is_refused(use):
    use(KEYS[0], KEYS[1])
    with pytest.raises(ConfigError, match=f"{TRUSTED_KEYS} does not contain"):
        check_keys()


def test_key_without_cryptography_names_the_extra(monkeypatch, use):
    use(KEYS[0])
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtraError, match=r"lsr_prod\[signing\]"):
        check_keys()


def test_command_refuses_a_malformed_key_and_an_unsigned_index_in_one_line(tmp_path, use, capsys, monkeypatch):
    build(tmp_path)
    monkeypatch.setenv(TRUSTED_KEYS, "none")
    assert main(["index", "publications", str(tmp_path)]) == 2
    use(None, KEYS[0])
    assert main(["index", "publications", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "lsr-prod index publications",
        "lsr-prod index publications failed",
    ]


def test_history_says_who_signed(tmp_path, use, capsys):
    use(KEYS[0])
    build(tmp_path)
    assert main(["index", "publications", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["publications"][0]
    assert found["signature"]["key"] == current_publication(tmp_path).signature.key
