"""The model card of a model directory names license, figures and data, and its code loads the model."""

import re
from pathlib import Path

import pytest

from lsr_prod.model import SparseEncoder
from lsr_prod.model.model_card import is_non_commercial, source_license, write_model_card
from tests.model.tiny import tiny_checkpoint

NON_COMMERCIAL = "---\ntags: [a]\nlicense: cc-by-nc-sa-4.0\n---\n# A model\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NON_COMMERCIAL, "cc-by-nc-sa-4.0"),
        ("---\nlicense:\n- mit\n---\n", "mit"),
        ('---\nlicense: "apache-2.0"\n---\n', "apache-2.0"),
        ("---\nlicense:\nlicense_name: own\n---\n", None),
        ("---\ntags: []\n---\nlicense: mit\n", None),
        ("# no front matter\nlicense: mit\n", None),
        ("---\nlicense: a|b\n---\n", "a"),
        ("---", None),
        ("", None),
    ],
)
def test_license_is_read_from_front_matter(text: str, expected: str | None, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(text)
    assert source_license(tmp_path) == expected
    (tmp_path / "README.md").unlink()
    assert source_license(tmp_path) is None


def test_non_commercial_licenses_are_known_by_their_parts() -> None:
    names = ("cc-by-nc-4.0", "CC-BY-NC-SA-4.0", "mit", "apache-2.0", "ncsa", "gemma")
    assert [is_non_commercial(name) for name in names] == [True, True, False, False, False, False]


def test_license_of_source_is_kept_and_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", "bert")
    (checkpoint / "README.md").write_text(NON_COMMERCIAL)
    SparseEncoder.load(checkpoint).save(tmp_path / "first")
    assert "forbids commercial use" in caplog.text
    changed = SparseEncoder.load(tmp_path / "first").with_card(query_encoder="learned")
    changed.save(tmp_path / "second")
    for name in ("first", "second"):
        text = (tmp_path / name / "README.md").read_text()
        assert source_license(tmp_path / name) == "cc-by-nc-sa-4.0"
        assert "Warning: this license forbids commercial use" in text


@pytest.mark.parametrize("fields", [{}, {"query_encoder": "learned"}, {"pooled_states": "mean"}])
def test_code_of_the_card_loads_the_model(
    fields: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert"), **fields).save(folder)
    code = re.search(r"```python\n(.*)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    assert len(code.splitlines()) == 5
    exec(compile(code.replace("folder or id of this model", str(folder)), "card", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_card_has_figures_and_digests(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    SparseEncoder.load(tiny_checkpoint(tmp_path / "checkpoint", "bert")).save(folder)
    training = {"stage": "finetune", "pins": {"data": "ab" * 32}, "training_set": "cd" * 32}
    summary = {"steps": 20, "validation/RR@10": 0.25, "docs_per_s": 3.0, "seconds": 1.0, "note": "none"}
    write_model_card(folder, training, summary)
    text = (folder / "README.md").read_text()
    for line in (f"| sha256 of data | {'ab' * 32} |", "| steps | 20 |", "| validation/RR@10 | 0.25 |"):
        assert line in text
    assert not re.search("seconds|docs_per_s", text)  # a repeated run has others
