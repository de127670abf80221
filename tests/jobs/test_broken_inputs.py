"""Every command answers broken inputs with one sentence and exit code 1 or 2, and never with a foreign error."""

from pathlib import Path

import pytest

from lsr_prod.jobs.command import COMMANDS, main
from tests.quick import first_quick

# Commands that read one place. Those that compute on Ray validate their settings first, as the YAML files below show.
PLACES = (
    "search",
    "table status",
    "table quarantine",
    "index publications",
    "index catalog",
    "index diff",
    "index pin",
    "index unpin",
    "inspect lineage",
    "index canary",
)
PAGES = ("index", "run", "evaluation", "sweep")
RECORDS = ("publications/1.json", "_delta_log/00000000000000000000.json", "manifest.json", "config.json",
           "encoder_card.json", "bundle.json", "plan.json", "versions/a.json")  # fmt: skip
YAML = [
    "", "[", "a: b", "- 1", "3", "\0", "source: 3", "encode: null", "source: &a [*a]", "source: {paths: [\"a\\0b\"]}",
    "!!python/object/apply:os.system [x]", "source: {paths: [x]}\nencode: {bundle: x, table: \"\\ud800\"}",
    "encode: {table: y, bundle: x, wave_megabytes: .nan}", "encode: {buckets: 1e400}", "index: {table: 3, output: [o]}",
    "evaluate: {index: nowhere, queries: q, qrels: r, measures: [ERR_IA@10]}", "evaluate: {measures: {}}",
    "train: {stages: x}", "export: {model: m, output: o, precision: int3}", "ray: {num_cpus: -1}", "report: [1]",
    "storage: {options: {a: {b: c}}}", "? {a: b}\n: c", "a: 1\na: 2", "source: !!binary x", "\ufeffsource: 1", "<<: 3",
]  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A place that is absent, empty, a file, full of damaged records, or no place at all."""
    root = tmp_path_factory.mktemp("broken")
    (root / "empty").mkdir()
    (root / "file").write_bytes(b"\0\xff\xfe")
    garbage = []
    for content in (b"", b"{", b"[]", b"3", b'{"format": 10000000000}', b"\xff\xfe\0"):
        folder = root / f"garbage{len(garbage)}"
        for record in RECORDS:
            (folder / record).parent.mkdir(parents=True, exist_ok=True)
            (folder / record).write_bytes(content)
        garbage.append(str(folder))
    named = [str(root / name) for name in ("nowhere", "empty", "file")]
    return [*named, *garbage, "", "s3://", "ftp://x/y", "a\0b", "\udcff", "s3://bucket/../x", "\x1b[2J"]


def sentence(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that has to fail; returns its sentence."""
    code = main(argv)
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if not line.startswith("{")]
    assert (code in (1, 2), len(lines)) == (True, 1), (argv, printed.err)
    assert "lsr_prod does not expect" not in printed.err, (argv, printed.err)
    assert lines[0].startswith("lsr-prod ")
    return lines[0]


@pytest.mark.parametrize("command", PLACES)
def test_broken_place_is_one_sentence(command: str, places: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for place in places:
        more = {"index pin": ["--reason", "x"], "index canary": [place, place]}.get(command, [])
        sentence([*command.split(), place, *more], capsys)


@pytest.mark.parametrize("kind", PAGES)
def test_page_of_a_broken_place_is_one_sentence(
    kind: str, places: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in places:
        sentence(["inspect", kind, place, "--output", str(tmp_path)], capsys)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"index warm", "vectors"}))
def test_wrong_usage_is_one_sentence(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--no-such-option"], ["--config"], ["--json=x"], ["--config", "nowhere.yaml"]):
        sentence([*command.split(), *argv], capsys)


@pytest.mark.parametrize(
    "command", first_quick(["encode", "index build", "evaluate", "export", "train", "table status", "table quarantine"])
)
def test_broken_deployment_is_one_sentence(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in YAML:
        (tmp_path / "d.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
        sentence([*command.split(), "--config", str(tmp_path / "d.yaml")], capsys)
