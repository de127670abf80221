import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lsr_prod.config import Deployment, FinetuneSettings, load_deployment
from lsr_prod.errors import ConfigError

YAML = """
source: {paths: [corpus.jsonl]}
encode: {bundle: bundle, table: table, batch_tokens: 4096}
"""

FINETUNE = "train: {{model: m, output: o, work: w, stages: [{{data: {{paths: [p], kind: scores}}, steps: 3, {}}}]}}"
SETS = (
    "train: {{model: m, output: o, work: w, stages: [{{steps: 3, objective: {{losses: [{{loss: {loss}}}]}}, "
    "data: [{{paths: [p], kind: {kind}, name: a}}, {{paths: [q], kind: pairs, {second}}}]{more}}}]}}"
)
MLM = "train: {{model: m, output: o, work: w, stages: [{{stage: adapt_mlm, data: {{paths: [p], kind: texts}}, {}}}]}}"
EVALUATE = "evaluate: {{index: i, queries: q, qrels: r, {}}}"
SYSTEM = "evaluate: {{index: i, queries: q, qrels: r, systems: [{{{}}}]}}"


def _load(folder: Path, *argv: str, text: str = YAML, needs: tuple[str, ...] = ("source", "encode")) -> Deployment:
    (folder / "deployment.yaml").write_text(text)
    return load_deployment(
        ["--config", str(folder / "deployment.yaml"), *argv], job="lsr-prod encode", description="", needs=needs
    )


def test_threads_that_read_deployments_get_the_settings_of_their_own_command_lines(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text(YAML)

    def read(number: int) -> int | None:
        argv = [
            "--config",
            str(tmp_path / "deployment.yaml"),
            *(("--encode.store_k", str(number)) if number % 3 else ()),
        ]
        encode = load_deployment(argv, job="lsr-prod encode", description="", needs=("source", "encode")).encode
        assert encode is not None
        return encode.store_k

    default, interval = read(0), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [*pool.map(read, range(60))] == [number if number % 3 else default for number in range(60)]
    finally:
        sys.setswitchinterval(interval)


def test_command_line_overrides_file_and_file_overrides_default(tmp_path: Path) -> None:
    deployment = _load(tmp_path, "--encode.store_k", "64", "--source.paths", "a", "--source.paths", "b")
    assert deployment.encode is not None
    assert deployment.source is not None
    assert (deployment.encode.store_k, deployment.encode.batch_tokens, deployment.encode.max_passages) == (64, 4096, 64)
    assert deployment.source.paths == ["a", "b"]


@pytest.mark.parametrize(
    ("argv", "text", "field", "words"),
    [
        ((), "encode: {bundle: b, table: t, batch_token: 5}", "encode.batch_token", "did you mean batch_tokens?"),
        ((), "encodes: {}", "encodes", "did you mean encode?"),
        (
            (),
            "train: {model: m, output: o, work: w, stages: [{stage: rescale_head, alpha: warm}]}",
            "train.stages.0.alpha",
            "'warm' is not possible; input should be a valid number, unable to parse string as a number, or input "
            "should be 'auto'",
        ),
        (
            (),
            "train: {model: m, output: o, work: w, stages: [{data: {paths: [p], kind: pairs, pathz: 1}}]}",
            "train.stages.0.data.pathz",
            "did you mean paths?",
        ),
        (
            (),
            SETS.format(loss="info_nce", kind="pairs", second="name: b, wait: 2", more=""),
            "train.stages.0.data.1.wait",
            "did you mean weight?",
        ),
        ((), SETS.format(loss="info_nce", kind="pairs", second="weight: 2", more=""), "train.stages.0.data.1.name", ""),
        (
            (),
            SETS.format(loss="info_nce", kind="pairs", second="name: a", more=""),
            "train.stages.0",
            "a name of its own",
        ),
        (
            (),
            SETS.format(loss="kl", kind="scores", second="name: b", more=""),
            "train.stages.0",
            "need data.kind scores",
        ),
        (
            (),
            SETS.format(loss="info_nce", kind="pairs", second="name: b", more=", batch: {negatives: 2}"),
            "train.stages.0",
            "rows of kind pairs have no negatives",
        ),
        (
            (),
            SETS.format(
                loss="info_nce, in_batch: false", kind="negatives", second="name: b", more=", batch: {negatives: 2}"
            ),
            "train.stages.0",
            "rows of kind pairs have none",
        ),
        (
            (),
            SETS.format(loss="info_nce", kind="pairs", second="name: b, weight: 2", more=", sampling: round_robin"),
            "train.stages.0",
            "remove the weights",
        ),
        (
            (),
            FINETUNE.format("sampling: round_robin, objective: {losses: [{loss: kl}]}, batch: {negatives: 1}"),
            "train.stages.0",
            "give a list of them as data",
        ),
        (
            (),
            MLM.format("steps: 3, optimizer: {learning_rate: -1}"),
            "train.stages.0.optimizer.learning_rate",
            "-1 is not possible; input should be greater than 0, or input should be 'auto'",
        ),
        ((), MLM.format("steps: 3, mask_rates: 0.5"), "train.stages.0.mask_rates", "did you mean mask_rate?"),
        ((), MLM.format("steps: 3, mask_rate: 1.5"), "train.stages.0.mask_rate", "less than 1"),
        ((), MLM.format("epochs: 2, steps: 3"), "train.stages.0", "give steps or epochs"),
        (
            (),
            FINETUNE.format("objective: {losses: [{loss: margin_mse, temperature: 2}]}"),
            "train.stages.0.objective.losses.0",
            "temperature has no effect without kl",
        ),
        (
            (),
            FINETUNE.format("objective: {losses: [{loss: kl}]}, optimizer: {betas: [0.9, 1.5]}"),
            "train.stages.0.optimizer.betas.1",
            "less than 1",
        ),
        (
            (),
            MLM.format("steps: 3").replace("adapt_mlm", "adapt_mln"),
            "train.stages.0.stage",
            "use one of finetune, adapt_mlm",
        ),
        (("--encode.batch_token", "5"), YAML, "encode.batch_token", "did you mean batch_tokens?"),
        ((), "encode: {bundle: b, table: t, batch_tokens: -5}", "encode.batch_tokens", "greater than or equal to 1"),
        (("--", "x"), YAML, "x", "there is no such setting"),
        (("--",), YAML, "command line", "unrecognized arguments: --; see --help"),
        (("--encode.batch_tokens", "many"), YAML, "encode.batch_tokens", "valid integer"),
        ((), "encode: {bundle: b}", "encode.table", "--encode.table VALUE"),
        ((), "source: {paths: []}", "source.paths", "at least 1 item"),
        ((), "source: {paths: ['']}", "source.paths.0", "it is empty; give a path or a URI"),
        ((), "source: {paths: [a]}\nmaintain: {table: t, indexes: [' ']}", "maintain.indexes.0", "it is empty"),
        ((), "source: {paths: [a]}", "encode", "add it to the file"),
        ((), "source: {paths: [a], format: xml}", "source.format", "'datasets'"),
        ((), "source: {paths: [a], separators: [' ', ' ']}", "source.separators", "text_fields need 1"),
        ((), "source: {paths: [a], columns: {body: text}}", "source.columns", "body is not in id_field"),
        (
            (),
            "source: {paths: [a], columns: {text: ''}}",
            "source.columns",
            "give the name of the column of the corpus",
        ),
        ((), "source: {paths: [a], csv: {header: [b, c, b]}}", "source.csv.header", "must be unique"),
        ((), 'source: {paths: [a], csv: {quotes: false, quote: "\'"}}', "source.csv.escape", "quotes is false"),
        ((), "source: {paths: [a], csv: {encoding: utf-9}}", "source.csv.encoding", "try utf-8, cp1252"),
        ((), "a: [", "--config", "fix the file"),
        ((), "[]", "--config", "give some of"),
        ((), "evaluate: {index: i, queries: q, qrels: r, thresholds: [1.5]}", "evaluate.thresholds", "from 0 to 1"),
        ((), SYSTEM.format("kind: sparse"), "evaluate.systems.0.name", "it is required"),
        ((), SYSTEM.format("kind: dense, name: a"), "evaluate.systems.0.kind", "use one of bm25, sparse, hybrid"),
        ((), SYSTEM.format("kind: sparse, name: a, treshold: 1"), "evaluate.systems.0.treshold", "did you mean"),
        ((), SYSTEM.format("kind: sparse, name: a, min_terms: 0"), "evaluate.systems.0.min_terms", "or equal to 1"),
        ((), SYSTEM.format("kind: bm25, name: ../a"), "evaluate.systems.0.name", "letters, digits"),
        ((), SYSTEM.format("kind: bm25}, {kind: bm25"), "evaluate.systems", "two systems are called bm25"),
        (
            (),
            SYSTEM.format("kind: sparse, name: a, min_terms: 2, weight_threshold: 0.5"),
            "evaluate.systems.0",
            "weight_threshold excludes",
        ),
        (("--evaluate.bm25", "false"), SYSTEM.format("kind: bm25"), "evaluate", "systems and bm25 are both given"),
        ((), EVALUATE.format("significance: 1"), "evaluate.significance", "less than 1"),
        ((), EVALUATE.format("correction: fdr"), "evaluate.correction", "'holm'"),
        (("--encode.batch_timeout_s", "0"), YAML, "encode.batch_timeout_s", "greater than or equal to 0.1"),
        (("--encode.document_timeout_s", "nan"), YAML, "encode.document_timeout_s", "less than or equal to 86400"),
        (("--encode.document_timeout_s", "inf"), YAML, "encode.document_timeout_s", "86400"),
        (
            ("--encode.batch_timeout_s", "30"),
            YAML,
            "encode.document_timeout_s",
            "set it to encode.batch_timeout_s (30) or less",
        ),
    ],
)
def test_wrong_setting_is_reported_in_one_line_with_field_and_remedy(
    tmp_path: Path, argv: tuple[str, ...], text: str, field: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, *argv, text=text)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cased_regularizer_may_be_accumulated(tmp_path: Path) -> None:
    cased = "sparsity: {regularizers: [{regularizer: cased, document: 1}]}"
    batch = "batch: {queries: 8, negatives: 1, accumulate: 2}"
    text = FINETUNE.format(f"{batch}, objective: {{losses: [{{loss: kl}}], {cased}}}")
    assert _load(tmp_path, text=text, needs=("train",)).train is not None


def test_section_of_the_page_on_evaluation_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    section = page.split("```yaml\n")[1].split("```")[0]
    evaluate = _load(tmp_path, text=section, needs=("evaluate",)).evaluate
    assert evaluate is not None
    assert {system.kind for system in evaluate.systems or []} == {"bm25", "sparse", "hybrid", "two-step", "run"}


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml cannot be read \(No such file or directory\)"):
        load_deployment(["--config", "absent.yaml"], job="lsr-prod encode", description="", needs=())


@pytest.mark.parametrize("value", [" ", " - ", "\t", " a", "", "x "])
def test_list_item_with_blanks_at_its_ends_is_refused_on_the_command_line(tmp_path: Path, value: str) -> None:
    if value.strip() == value:
        assert _load(tmp_path, "--source.separators", value).source.separators == [value]
        return
    with pytest.raises(ConfigError, match="an item of a list loses blanks at its ends") as caught:
        _load(tmp_path, f"--source.separators={value}")
    assert caught.value.field == "source.separators"
    assert caught.value.remedy == """write the list as JSON, for example '[" "]'"""


def test_list_as_json_keeps_blanks_on_the_command_line(tmp_path: Path) -> None:
    for value, wanted in (('[" "]', [" "]), (' [" - "] ', [" - "]), ('" x"', [" x"])):
        assert _load(tmp_path, "--source.separators", value).source.separators == wanted
    paths = _load(tmp_path, "--source.paths", "a, b", "--source.paths", "c").source.paths
    assert paths == ["a", "b", "c"]
    assert _load(tmp_path, "--source.separator", " - ").source.separator == " - "


def test_name_of_a_file_that_is_too_long_is_reported_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^--config: x{300} cannot be read \(File name too long\)"):
        load_deployment(["--config", "x" * 300], job="lsr-prod encode", description="", needs=())


def test_help_omits_sections_that_the_job_does_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_deployment(["--help"], job="job", description="", needs=("index",), optional=("evaluate",))
    sections = set(re.findall(r"--([a-z]+)\.", capsys.readouterr().out))
    assert sections == {"ray", "storage", "index", "evaluate"}


def test_credential_in_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    text = "storage: {options: {aws_secret_access_key: hunter2}}"
    with pytest.raises(ConfigError, match="credential") as caught:
        _load(tmp_path, text=text)
    assert "hunter2" not in str(caught.value)


def test_credential_on_the_command_line_is_not_repeated(tmp_path: Path) -> None:
    for argument in ("--storage.options.aws_secret_access_key=hunter2", "--storage.optoins=a=hunter2"):
        with pytest.raises(ConfigError, match="there is no such setting") as caught:
            _load(tmp_path, argument)
        assert caught.value.field == argument.removeprefix("--").partition("=")[0]
        assert "hunter2" not in str(caught.value)


def test_message_about_section_does_not_repeat_its_contents(tmp_path: Path) -> None:
    text = FINETUNE.format(
        "epochs: 2, objective: {losses: [{loss: kl}]}, watch: {mlflow: 'https://alice:hunter2@host/'}"
    )
    with pytest.raises(ConfigError, match=r"^train\.stages\.0: the section is not possible; give steps or") as caught:
        _load(tmp_path, text=text)
    assert "hunter2" not in str(caught.value)


def test_help_describes_every_field_of_the_sections_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_deployment(["--help"], job="job", description="Encode a corpus.", needs=tuple(Deployment.model_fields))
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Encode a corpus." in text
    for section, field in Deployment.model_fields.items():
        annotation = field.annotation
        model = annotation if isinstance(annotation, type) else annotation.__args__[0]  # type: ignore[union-attr]
        for name, setting in model.model_fields.items():
            assert re.search(rf"--{section}\.{name}[. ]", text)  # or a nested section
            assert setting.description, f"{section}.{name} has no description"
            assert " ".join(setting.description.split())[:20] in text
    assert "terms stored per document, heaviest first (default: 256)" in text


def test_columns_map_field_names_to_columns_of_the_corpus(tmp_path: Path) -> None:
    text = "source: {paths: [a], text_fields: [title, by, text], separators: [': ', ' '], columns: {_id: docno}}"
    source = _load(tmp_path, "--source.separator", " | ", text=text, needs=("source",)).source
    assert source is not None
    assert source.fields == ["_id", "title", "by", "text"]
    assert (source.column("_id"), source.column("text"), source.separator) == ("docno", "text", " | ")


def test_pairs_may_stand_next_to_rows_with_negatives(tmp_path: Path) -> None:
    text = SETS.format(loss="info_nce", kind="negatives", second="name: b, weight: 2", more=", batch: {negatives: 2}")
    train = _load(tmp_path, text=text, needs=("train",)).train
    assert train is not None
    stage = train.stages[0]
    assert isinstance(stage, FinetuneSettings)
    assert [(one.kind, one.paths) for one in stage.data_sets] == [("negatives", ["p"]), ("pairs", ["q"])]


def test_index_takes_table_and_bundle_of_encode(tmp_path: Path) -> None:
    text = "encode: {bundle: b, table: t}\nindex: {output: i%s}"
    found = _load(tmp_path, "--encode.table", "u", text=text % "", needs=("encode", "index")).index
    assert found is not None
    assert (found.table, found.bundle) == ("u", "b")
    found = _load(tmp_path, text=text % ", table: own", needs=("index",)).index
    assert found is not None
    assert (found.table, found.bundle) == ("own", "b")
    with pytest.raises(ConfigError, match=r"index\.table: it is required"):
        _load(tmp_path, text="index: {output: i, bundle: b}", needs=("index",))
