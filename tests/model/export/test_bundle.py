import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lsr_prod.config import ExportSettings
from lsr_prod.errors import ConfigError
from lsr_prod.inference import BundleEncoder
from lsr_prod.jobs.command import main
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.model.backbone import output_layer
from lsr_prod.model.export import export_bundle
from lsr_prod.model.export.graph import INPUTS
from lsr_prod.storage import Store, folders
from lsr_prod.storage.folders import open_bundle, save_folder
from lsr_prod.storage.formats.bundle_format import Bundle, QueryGraph
from tests.model.conftest import Traces
from tests.model.tiny import tiny_checkpoint


def _settings(model: Path, output: Path, **changes: Any) -> ExportSettings:
    return ExportSettings(model=str(model), output=str(output), **changes)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"), "roberta")


@pytest.fixture(scope="module")
def model(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    SparseEncoder.load(checkpoint).save(folder)
    return folder


@pytest.fixture(scope="module")
def bundle(model: Path, traced_once: Traces, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bundle") / "new" / "bundle"
    return folder, dict(export_bundle(_settings(model, folder, top_k=1000)))


def test_model_with_values_that_are_not_finite_is_refused(model: Path, tmp_path: Path) -> None:
    encoder = SparseEncoder.load(model)
    with torch.no_grad():
        output_layer(encoder.model)[0][5] = torch.nan
    encoder.save(tmp_path / "broken")
    with pytest.raises(ConfigError, match=r"export\.model: .*weight that are not finite"):
        export_bundle(_settings(tmp_path / "broken", tmp_path / "bundle"))
    assert not (tmp_path / "bundle").exists()


def test_fp16_is_refused_if_a_value_of_the_model_is_above_its_range(tmp_path: Path) -> None:
    """The parity check computes fp16 graphs in 32 bits on a CPU, where nothing overflows."""
    encoder = SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"))
    layer = encoder.model.bert.encoder.layer[1]
    with torch.no_grad():
        layer.intermediate.dense.weight *= 1e6
        layer.output.dense.weight /= 1e6
    encoder.save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"export\.precision: fp16 ends at 65504, and .* are up to \d+; take fp32"):
        export_bundle(_settings(tmp_path / "model", tmp_path / "bundle", precision="fp16"))
    assert not (tmp_path / "bundle").exists()


@pytest.mark.long
def test_summary_describes_bundle(model: Path, bundle: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = bundle
    sealed = Bundle.load(folder, verify=True)
    assert summary["bundle_digest"] == sealed.digest
    assert summary["model_digest"] == sealed.model_digest == model_digest(model)
    assert summary["top_k"] == sealed.top_k == 97, "never more terms than the vocabulary has"
    assert summary["graph_bytes"] == (folder / "model.onnx").stat().st_size
    assert summary["parity_overlap"] > 0.999
    assert summary["parity_top10_overlap"] == 1
    assert summary["parity_weight_difference"] < 1e-4
    json.dumps(summary)
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"], "no drafts are left"


@pytest.mark.long
def test_existing_equal_bundle_is_kept(model: Path, bundle: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = bundle
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = export_bundle(_settings(model, folder, top_k=1000))
    assert {key: again[key] for key in ("bundle_digest", "model_digest")} == {
        key: summary[key] for key in ("bundle_digest", "model_digest")
    }
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


@pytest.mark.long
def test_two_exports_have_equal_bytes(
    model: Path, bundle: tuple[Path, dict[str, Any]], traced_once: Traces, tmp_path: Path
) -> None:
    traced_once.clear()
    assert (
        export_bundle(_settings(model, tmp_path / "again", top_k=1000))["bundle_digest"] == bundle[1]["bundle_digest"]
    )


@pytest.mark.long
@pytest.mark.parametrize("changes", [{"precision": "int8", "top_k": 1000}, {"top_k": 20}])
def test_output_with_another_bundle_is_refused(
    model: Path, bundle: tuple[Path, dict[str, Any]], changes: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"export\.output: .* holds another bundle"):
        export_bundle(_settings(model, bundle[0], **changes))
    assert Bundle.load(bundle[0], verify=True).digest == bundle[1]["bundle_digest"]


def test_bundle_whose_query_graph_has_another_top_k_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = SparseEncoder.load(model)
    digest = encoder.with_queries(encoder).save(tmp_path / "pair")
    bundle = Bundle("fp32", 80, digest, INPUTS, (), query=QueryGraph(60, INPUTS))
    monkeypatch.setattr(folders, "open_bundle", lambda output, _: (Path(output), bundle))
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "bundle.json").touch()
    with pytest.raises(ConfigError, match=r"holds another bundle, fp32 with top_k 80 \(queries 60\) of model"):
        export_bundle(_settings(tmp_path / "pair", tmp_path / "bundle", top_k=80))


def test_output_with_other_content_is_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"export\.output: .* has other content"):
        export_bundle(_settings(model, tmp_path))
    with pytest.raises(ConfigError, match="is a file"):
        export_bundle(_settings(model, tmp_path / "mine.txt"))
    with pytest.raises(ConfigError, match=r"export\.output: s3://bucket names no folder"):
        export_bundle(_settings(model, Path("x")).model_copy(update={"output": "s3://bucket"}))


@pytest.mark.long
def test_model_and_output_by_uri_give_the_same_bundle_as_folders(
    model: Path, bundle: tuple[Path, dict[str, Any]], s3_options: dict[str, str], tmp_path: Path
) -> None:
    root = f"s3://lsr/{tmp_path.name}"
    save_folder(model, f"{root}/models/one", s3_options)
    texts = Store(root, s3_options)
    texts.put_new("parity.jsonl", b'{"text": "a quick fox"}\n')
    settings = ExportSettings(
        model=f"{root}/models/one", output=f"{root}/bundles/one", top_k=1000, parity_texts=f"{root}/parity.jsonl"
    )
    for _ in range(2):
        assert export_bundle(settings, s3_options)["bundle_digest"] == bundle[1]["bundle_digest"]
    folder, made = open_bundle(settings.output, s3_options)
    assert made == Bundle.load(bundle[0])
    assert len(BundleEncoder(folder).encode(["fox"], kind="document")) == 1
    with pytest.raises(ConfigError, match=r"export\.output: .* holds another bundle"):
        export_bundle(settings.model_copy(update={"top_k": 20}), s3_options)
    with pytest.raises(ConfigError, match=r"export\.model: .* has no two; give the URI"):
        export_bundle(settings.model_copy(update={"model": f"{root}/models/two"}), s3_options)
    with pytest.raises(ConfigError, match=r"export\.parity_texts: there is no file at"):
        export_bundle(settings.model_copy(update={"parity_texts": f"{root}/none.jsonl"}), s3_options)


@pytest.mark.long
def test_plain_checkpoint_gets_digest_of_its_model_directory(
    checkpoint: Path, traced_once: Traces, tmp_path: Path
) -> None:
    digest = SparseEncoder.load(checkpoint).save(tmp_path / "model")
    assert export_bundle(_settings(checkpoint, tmp_path / "bundle"))["model_digest"] == digest


@pytest.mark.parametrize("model", ["/nowhere/model", "nobody/no-such-model"])
def test_job_exits_2_with_one_line_and_writes_nothing(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "--export.model", model, "--export.output", str(tmp_path / "out" / "bundle")]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "export.model: " in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_bundle_of_real_checkpoint_equals_torch(tiny_model: Path, tiny_bundle: Path) -> None:
    opened, encoder = BundleEncoder(tiny_bundle, verify=True), SparseEncoder.load(tiny_model)
    assert opened.card == encoder.card
    texts = ["how does an inverted index work", "", "東京 is the capital of Japan", "word " * 300]
    ours, theirs = encoder.encode(texts), opened.encode(texts, kind="document")
    assert (ours.offsets == theirs.offsets).all()
    for i in range(len(texts)):
        a, b = (dict(zip(*(x.tolist() for x in batch.row(i)), strict=True)) for batch in (ours, theirs))
        assert a.keys() == b.keys()
        assert all(abs(a[term] - b[term]) < 1e-4 for term in a)
