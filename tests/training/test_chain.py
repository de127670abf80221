"""A chain of stages: done work is skipped, begun work goes on, and a wrong setting is found before any work."""

import copy
import json
import re
import signal
from contextlib import nullcontext
from importlib.metadata import version
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from lsr_prod.config import Deployment
from lsr_prod.errors import ArtifactError, ConfigError, DigestMismatchError, TrainingError
from lsr_prod.model import SparseEncoder, model_digest
from lsr_prod.storage import Store
from lsr_prod.storage.artifacts import fetch_artifact
from lsr_prod.storage.folders import open_folder, save_folder
from lsr_prod.storage.formats.bundle_format import EncoderCard
from lsr_prod.training import chain
from lsr_prod.training.chain import ray_for, run_chain
from lsr_prod.training.chain_plan import plan_chain
from lsr_prod.training.lineage import lineage, read_training
from tests.model.tiny import tiny_model, tiny_tokenizer
from tests.training.stand_in import start_chain, train_a_little

Settings = dict[str, Any]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a small masked language model, as transformers writes one."""
    folder = tmp_path_factory.mktemp("start") / "bert"
    tiny_model("bert").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def settings(start: Path, tmp_path: Path) -> Settings:
    return settings_in(tmp_path, start)


@pytest.fixture(scope="module")
def undisturbed(start: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model of a chain that nothing disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return str(run_apart(settings_in(folder, start), folder)["model_digest"])


def settings_in(tmp_path: Path, start: Path) -> Settings:
    """Two stages on one file of pairs."""
    rows = [{"query": f"w{i} w7", "positive": f"w{i} w9 w5"} for i in range(1, 40)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stage = {
        "data": {"paths": [str(tmp_path / "pairs.jsonl")], "kind": "pairs"},
        "batch": {"queries": 4},
        "steps": 3,
        "objective": {"losses": [{"loss": "info_nce"}]},
        "optimizer": {"learning_rate": 0.01},
    }
    train = {
        "model": str(start),
        "output": str(tmp_path / "out" / "model"),
        "work": str(tmp_path / "work"),
        "stages": [{**copy.deepcopy(stage), "seed": seed} for seed in (1, 2)],
    }
    return {"train": train}


@pytest.fixture(autouse=True)
def _small_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "ray_for", lambda train, _: nullcontext(train))
    monkeypatch.setattr(chain, "run_stage", train_a_little)


def run(settings: Settings) -> dict[str, Any]:
    return run_chain(Deployment.model_validate(settings))


def run_apart(settings: Settings, folder: Path) -> dict[str, Any]:
    """In a process of its own: this one, with all that ran in it, may add numbers up in another order."""
    assert ended(start_chain(settings, folder / "summary")) == 0
    return dict(json.loads((folder / "summary").read_text()))


def runs(settings: Settings) -> list[int]:
    """Seeds of the stages that were run, sorted."""
    return sorted(int(path.read_text()) for path in (Path(settings["train"]["work"]) / "runs").iterdir())


def skipped(summary: dict[str, Any]) -> list[bool]:
    return [row["skipped"] for row in summary["stage_rows"]]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_chain_trains_each_stage_once(settings: Settings, tmp_path: Path) -> None:
    first = run(settings)
    output = tmp_path / "out" / "model"
    assert (first["stages"], first["stages_skipped"], skipped(first)) == (2, 0, [False, False])
    assert first["model_digest"] == model_digest(output) == first["stage_rows"][1]["model"]
    assert first["stage_rows"][1]["parent"] == first["stage_rows"][0]["model"] != first["model_digest"]
    assert first["stage_rows"][0]["parent"] == first["start_digest"]
    assert [path.name for path in output.parent.iterdir()] == ["model"]
    SparseEncoder.load(output)
    before = files_below(tmp_path)
    again = run(settings)
    assert (again["stages_skipped"], again["model_digest"]) == (2, first["model_digest"])
    assert files_below(tmp_path) == before
    assert runs(settings) == [1, 2]


def test_finished_chain_is_delivered_from_store_without_training(settings: Settings, tmp_path: Path) -> None:
    first = run(settings)
    settings["train"]["output"] = str(tmp_path / "elsewhere")
    assert run(settings)["model_digest"] == first["model_digest"] == model_digest(tmp_path / "elsewhere")
    settings["train"]["work"] = str(tmp_path / "work2")
    settings["train"]["output"] = str(tmp_path / "third")
    assert run(settings)["model_digest"] == first["model_digest"]  # nothing volatile is in a model directory
    assert runs(settings) == [1, 2]


def test_chain_starts_from_model_directory(settings: Settings, start: Path, tmp_path: Path) -> None:
    digest = SparseEncoder.load(start).save(tmp_path / "directory")
    settings["train"]["model"] = str(tmp_path / "directory")
    summary = run(settings)
    assert summary["start_digest"] == digest
    assert (tmp_path / "work" / "models" / digest).is_dir()


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        (0, {"steps": 4}, [False, False]),
        (1, {"steps": 4}, [True, False]),
        (0, {"seed": 5}, [False, False]),
        (1, {"objective": {"losses": [{"loss": "info_nce", "temperature": 2.0}]}}, [True, False]),
        (0, {"watch": {"every": 3}}, [True, True]),
        (0, {"checkpoint_every": 7}, [True, True]),
        (1, {"data": {"max_bad_fraction": 0.5}}, [True, True]),
        (1, {"data": {"max_text_bytes": 500}}, [True, False]),
    ],
)
def test_changed_stage_and_later_stages_run_again(
    settings: Settings, tmp_path: Path, number: int, change: Settings, expected: list[bool]
) -> None:
    run(settings)
    stage = settings["train"]["stages"][number]
    for key, value in change.items():
        stage[key] = {**stage[key], **value} if key == "data" else value
    settings["train"]["output"] = str(tmp_path / "changed")
    assert skipped(run(settings)) == expected


def test_moved_data_is_skipped_but_changed_data_is_trained(settings: Settings, tmp_path: Path) -> None:
    run(settings)
    settings["train"]["output"] = str(tmp_path / "changed")
    data = tmp_path / "pairs.jsonl"
    (tmp_path / "moved").mkdir()
    moved = data.rename(tmp_path / "moved" / "pairs.jsonl")
    for stage in settings["train"]["stages"]:
        stage["data"]["paths"] = [str(moved)]
    assert skipped(run(settings)) == [True, True]
    moved.write_text(moved.read_text() + '{"query": "w1", "positive": "w3"}\n')
    settings["train"]["output"] = str(tmp_path / "third")
    assert skipped(run(settings)) == [False, False]


@pytest.mark.long
def test_lineage_leads_to_start_model(settings: Settings, tmp_path: Path) -> None:
    settings["train"]["stages"][0]["watch"] = {"mlflow": "http://user:secret@tracking:5000"}
    summary = run(settings)
    output, store = tmp_path / "out" / "model", Store(settings["train"]["work"])
    middle, first = summary["stage_rows"][0]["model"], summary["start_digest"]
    start_card = EncoderCard.load(fetch_artifact(store, f"models/{first}"))
    assert EncoderCard.load(output).parents == (middle, first, *start_card.parents)
    found = lineage(output, store)
    assert [ancestor.model for ancestor in found] == [summary["model_digest"], middle, first, *start_card.parents]
    trained = [ancestor.training for ancestor in found]
    assert trained[2:] == [None] * len(trained[2:])
    assert trained[0] is not None
    assert trained[1] is not None
    assert (trained[0]["parent"], trained[1]["parent"]) == (middle, first)
    assert trained[0]["stage"] == "finetune"
    assert [one["settings"]["seed"] for one in trained[:2] if one] == [1 + 1, 1]
    assert trained[0]["training_set"] == "0" * 64
    assert trained[0]["versions"]["torch"] == version("torch")
    text = json.dumps([read_training(output), trained[1]])
    assert "secret" not in text
    assert str(tmp_path) not in text
    assert [ancestor.training is None for ancestor in lineage(output)][:2] == [False, True]


def test_failed_stage_keeps_earlier_stages(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(stage: Any, *arguments: Any, **named: Any) -> Any:
        if stage.seed == 2:
            raise TrainingError("no more machines")
        return train_a_little(stage, *arguments, **named)

    with monkeypatch.context() as context:
        context.setattr(chain, "run_stage", failing)
        with pytest.raises(TrainingError):
            run(settings)
    assert not (tmp_path / "out" / "model").exists()
    assert list((tmp_path / "out").iterdir()) == []
    assert skipped(run(settings)) == [True, False]


@pytest.mark.long
def test_killed_chain_resumes_at_its_stage(settings: Settings, undisturbed: str, tmp_path: Path) -> None:
    for step in (1, 2):
        assert ended(start_chain(settings, tmp_path / "answer", kill_step=(2, step))) == -signal.SIGKILL
        assert not (tmp_path / "out" / "model").exists()
    assert skipped(run_apart(settings, tmp_path)) == [True, False]
    assert runs(settings) == [1, 2, 2, 2]
    assert model_digest(tmp_path / "out" / "model") == undisturbed


@pytest.mark.long
@pytest.mark.parametrize(
    "write", [(Store, "put_new", n) for n in (1, 2, 3, 4, 5)] + [(Path, "rename", n) for n in (1, 2, 4, 5)]
)
def test_chain_killed_between_writes_ends_like_undisturbed_chain(
    settings: Settings, undisturbed: str, tmp_path: Path, write: tuple[type, str, int]
) -> None:
    assert ended(start_chain(settings, tmp_path / "answer", kill_write=write)) == -signal.SIGKILL
    done = run_apart(settings, tmp_path)["model_digest"]
    assert done == model_digest(tmp_path / "out" / "model") == undisturbed


@pytest.mark.long
def test_concurrent_chains_end_in_same_state(settings: Settings, tmp_path: Path) -> None:
    answers = [tmp_path / f"answer{i}" for i in range(3)]
    assert [ended(racer) for racer in [start_chain(settings, answer) for answer in answers]] == [0, 0, 0]
    models = {json.loads(answer.read_text())["model_digest"] for answer in answers}
    assert models == {model_digest(tmp_path / "out" / "model")}


def ended(process: BaseProcess) -> int | None:
    process.join(120)
    return process.exitcode


@pytest.mark.long
def test_chain_of_uris_makes_the_same_model(
    start: Path, settings: Settings, tmp_path: Path, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    local = run(settings)
    work = f"s3://lsr/{tmp_path.name}"
    settings["storage"] = {"options": s3_options}
    save_folder(start, f"{work}/start", s3_options)
    collection = write_collection(f"{work}/collection", s3_options)
    settings["train"] |= {"model": f"{work}/start", "work": work, "output": f"{work}/out/model"}
    settings["train"]["stages"][1]["validation"] = {**collection, "every": 100}
    local_paths = {path for path in tmp_path.rglob("*") if "cache" not in path.parts}
    summary = run(settings)
    assert summary["output"] == f"{work}/out/model"
    assert skipped(run(settings)) == [True, True]
    assert {path for path in tmp_path.rglob("*") if "cache" not in path.parts} == local_paths
    # The second stage is another one, because it validates.
    assert summary["stage_rows"][0]["model"] == local["stage_rows"][0]["model"]
    folder = open_folder(f"{work}/out/model", s3_options)
    assert model_digest(folder) == summary["model_digest"]
    found = lineage(folder, Store(work, s3_options))
    assert [ancestor.training is None for ancestor in found[:3]] == [False, False, True]


def write_collection(uri: str, options: dict[str, str]) -> dict[str, str]:
    store = Store(uri, options)
    store.put_new("corpus.jsonl", b'{"_id": "d1", "text": "w1 w2"}\n')
    store.put_new("queries.jsonl", b'{"_id": "q1", "text": "w1"}\n')
    store.put_new("qrels.tsv", b"query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    return {"corpus": f"{uri}/corpus.jsonl", "queries": f"{uri}/queries.jsonl", "qrels": f"{uri}/qrels.tsv"}


@pytest.mark.parametrize("gone", [False, True])
def test_data_changed_during_earlier_stage_fails_training(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    later = tmp_path / "later.jsonl"
    later.write_text((tmp_path / "pairs.jsonl").read_text())
    settings["train"]["stages"][1]["data"]["paths"] = [str(later)]

    def change(*arguments: Any, **named: Any) -> Any:
        summary = train_a_little(*arguments, **named)
        later.unlink() if gone else later.write_text(later.read_text() + '{"query": "w1", "positive": "w3"}\n')
        return summary

    with monkeypatch.context() as context:
        context.setattr(chain, "run_stage", change)
        with pytest.raises(TrainingError, match=r"train\.stages\.1: data .*; run the job again"):
            run(settings)
    assert runs(settings) == [1]
    if not gone:
        assert skipped(run(settings)) == [True, False]


def test_damaged_or_deleted_artifact_is_named(settings: Settings, tmp_path: Path) -> None:
    summary = run(settings)
    work = tmp_path / "work"
    model, stage = summary["model_digest"], summary["stage_rows"][1]["stage"]
    settings["train"]["output"] = str(tmp_path / "again")
    weights = work / "models" / model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(DigestMismatchError, match=r"model\.safetensors"):
        run(settings)
    (work / "models" / f"{model}.json").unlink()
    with pytest.raises(ArtifactError, match=rf"was deleted; delete stages/{stage}\.json"):
        run(settings)
    (work / "stages" / f"{stage}.json").write_text("{}")
    with pytest.raises(ArtifactError, match="is damaged"):
        run(settings)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("data.columns", "train.stages.0.data.columns"),
        ("train.stages.batch.queries", "train.stages.0.batch.queries"),
        ("train.workers", "train.workers"),
    ],
)
def test_rejected_setting_is_named_with_stage_number(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, said: str, field: str
) -> None:
    def refusing(*arguments: Any, **named: Any) -> Any:
        raise ConfigError(said, "it is wrong", "mend it")

    monkeypatch.setattr(chain, "run_stage", refusing)
    with pytest.raises(TrainingError, match=f"^{re.escape(field)}: it is wrong; mend it$"):
        run(settings)


def _set(settings: Settings, path: str, value: Any) -> None:
    *places, name = path.split(".")
    here: Any = settings
    for place in places:
        here = here[int(place)] if isinstance(here, list) else here.setdefault(place, {})
    here[name] = value


VALIDATION = {"queries": "q", "qrels": "r", "corpus": "c"}
LORA = {"lora": {"targets": ["nowhere"]}}


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("train.model", "/nowhere/model", "train.model"),
        ("train.model", "FILE", "train.model"),
        ("train.output", "FILE", "train.output"),
        ("train.output", "FULL", "train.output"),
        ("train.work", "FILE", "train.work"),
        ("train.workers", 5, "train.workers"),
        ("train.stages.1.data.paths", ["/nowhere"], "train.stages.1.data.paths"),
        ("train.stages.1.data.paths", ["TABLE.csv"], "train.stages.1.data.paths"),
        ("train.stages.1.data.version", 3, "train.stages.1.data.version"),
        ("train.stages.1.query_max_length", 1000, "train.stages.1.query_max_length"),
        ("train.stages.0.document_max_length", 73, "train.stages.0.document_max_length"),
        ("train.stages.1.validation", VALIDATION, "train.stages.1.validation.corpus"),
        ("train.stages.1.scale", LORA, "train.stages.1.scale.lora.targets"),
    ],
)
def test_wrong_setting_is_rejected_before_writing(
    settings: Settings, tmp_path: Path, path: str, value: Any, field: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    (tmp_path / "t.csv").write_text("query,positive\na,b\n")
    names = {"FILE": str(tmp_path / "file"), "FULL": str(tmp_path / "full"), "TABLE.csv": str(tmp_path / "t.csv")}
    value = [names.get(one, one) for one in value] if isinstance(value, list) else value
    _set(settings, path, names.get(value, value) if isinstance(value, str) else value)
    before = files_below(tmp_path)
    with pytest.raises(ConfigError) as caught:
        run(settings)
    assert caught.value.field == field, caught.value
    assert files_below(tmp_path) == before
    assert not (tmp_path / "work").exists()


def test_fsdp_requires_equal_shares_for_every_number_of_workers(settings: Settings) -> None:
    settings["train"] |= {"workers": 4, "min_workers": 2}
    settings["train"]["stages"][1]["scale"] = {"strategy": "fsdp"}
    with pytest.raises(ConfigError, match=r"4 queries do not divide among 3 workers"):
        run(settings)


def test_damaged_start_model_is_rejected(settings: Settings, tmp_path: Path) -> None:
    card = tmp_path / "model" / "encoder_card.json"
    SparseEncoder.load(settings["train"]["model"]).save(card.parent)
    card.write_text("{}")
    settings["train"]["model"] = str(card.parent)
    with pytest.raises(ConfigError, match=r"train\.model"):
        run(settings)


@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cpus_per_worker": 3}, "train.cpus_per_worker"),
        ({"workers": 4}, "train.cpus_per_worker"),
        ({"use_gpu": True}, "train.use_gpu"),
        ({"workers": 4, "min_workers": 2}, None),
    ],
)
def test_too_many_workers_for_machine_are_rejected(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, change: Settings, field: str | None
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    deployment = Deployment.model_validate({"train": settings["train"] | change})
    assert deployment.train is not None
    refused = nullcontext() if field is None else pytest.raises(ConfigError, match=field)
    with refused, ray_for(deployment.train, deployment.ray):
        pass


def test_output_of_other_chain_is_rejected(settings: Settings, tmp_path: Path) -> None:
    run(settings)
    settings["train"]["stages"][1]["steps"] = 4
    before = files_below(tmp_path)
    with pytest.raises(ConfigError, match=r"train\.output.*holds something else"):
        run(settings)
    assert files_below(tmp_path) == before


def test_joint_weight_too_large_for_batch_is_warned_about_before_anything_is_written(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    regularizer = {"regularizer": "joint_flops", "joint": 5}
    settings["train"]["stages"][1]["objective"]["sparsity"] = {"regularizers": [regularizer]}
    plan = plan_chain(Deployment.model_validate(settings), tmp_path / "scratch")
    (sentence,) = plan.warnings
    assert sentence.startswith("train.stages.1.objective.sparsity.regularizers.0.joint is 5: over 4 documents, 125%")
    assert sentence in caplog.text
    assert not (tmp_path / "work").exists()
    assert run(settings)["warnings"] == [sentence]
