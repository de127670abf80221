"""HTML and JSON of a page: escaping, the content security policy, and what a reader of any page can rely on."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lsr_prod_contrib.pages import Chart, Page, write_page
from lsr_prod_contrib.pages.charts import bars, lines, points, series
from lsr_prod_contrib.pages.write import embedded_json, page_json, plain, render_page
from tests.contrib.pages.browser import opened, problems_of

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'<!--\u2028{{ 7 * 7 }}"


def demo(text: str = "lock") -> Page:
    """A page with a chart of each kind, titles and values with this text."""
    rows = [{"term": f"{text} {n}", "x": float(n), "y": n * n + 1.5, "model": text if n % 2 else "b"} for n in range(6)]
    columns = {"term": "Term", "x": "Cost", "y": "Gain", "model": "Model"}
    color = series("model", "Model", [text, "b"])
    specs = {
        "bars": bars("y", "term", value_title="weight", rows=6, color=color),
        "points": points("x", "y", x_title="cost", y_title="gain", color=color),
        "lines": lines("x", "y", x_title="cost", y_title="gain", color=color),
    }
    charts = {
        name: Chart(f"{name} of {text}", f"Six rows of {text}.", columns, rows, spec) for name, spec in specs.items()
    }
    return Page("demo", f"Demo of {text}", "demo.html.j2", {"text": text, "n": 3}, charts, script="query.js")


@pytest.fixture(autouse=True)
def _template(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template of the tests, next to those of the package."""
    from jinja2 import ChoiceLoader, DictLoader

    from lsr_prod_contrib.pages.write import _templates

    source = (
        '{% extends "base.html.j2" %}{% import "parts.html.j2" as parts with context %}{% block content %}'
        '<h2 id="a">{{ data.text }}</h2>{{ parts.facts({"text": data.text, "number": data.n}) }}'
        "{% for name in page.charts %}{{ parts.chart(name) }}{% endfor %}{% endblock %}"
    )
    environment = _templates()
    loader = ChoiceLoader([environment.loader, DictLoader({"demo.html.j2": source})])
    monkeypatch.setattr(environment, "loader", loader)


def content_of(html: str) -> dict[str, object]:
    """The JSON element of a page, found as an HTML parser finds it: to the first closing tag."""
    found = re.search(r'<script type="application/json" id="content">(.*?)</script', html, re.DOTALL)
    assert found is not None
    content: dict[str, object] = json.loads(found[1])
    return content


def test_hostile_text_leaves_neither_the_json_element_nor_the_html() -> None:
    html = render_page(demo(HOSTILE))
    content = content_of(html)
    assert content["data"] == {"text": HOSTILE, "n": 3}
    assert content["charts"]["bars"]["rows"][1]["model"] == HOSTILE  # type: ignore[index]
    body = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert "<img" not in body
    assert "<!--" not in body
    assert "{{ 7 * 7 }}" in body  # text is no template


def test_json_file_and_json_element_have_the_same_content() -> None:
    page = demo(HOSTILE)
    inside, file = content_of(render_page(page)), json.loads(page_json(page))
    for chart in inside["charts"].values():  # type: ignore[attr-defined]
        assert chart.pop("spec")["config"]
    assert file == inside
    assert file["format"] == 1
    assert file["page"] == "demo"


def test_page_is_the_same_bytes_for_the_same_data() -> None:
    assert render_page(demo()) == render_page(demo())


def test_policy_allows_only_the_scripts_and_the_style_of_the_page() -> None:
    html = render_page(demo())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    directives = dict(one.strip().split(" ", 1) for one in policy[1].replace("&#39;", "'").split(";"))
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in policy[1]
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digests = [f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts]
    assert directives["script-src"].split() == digests
    assert len(digests) == 3


def test_page_without_charts_contains_no_plotting_library() -> None:
    assert len(render_page(replace(demo(), charts={}))) < 20_000


def test_page_without_a_script_embeds_the_charts_only() -> None:
    assert list(content_of(render_page(replace(demo(), script=None)))) == ["charts"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        ((1, 2.5, True, None), [1, 2.5, True, None]),
        ({"a": {3: ("x",)}}, {"a": {"3": ["x"]}}),
        ("\ud800", "?"),
    ],
)
def test_plain_values_are_what_json_can_hold(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_value_without_a_form_in_json_is_rejected() -> None:
    with pytest.raises(TypeError, match="Path has no form in JSON"):
        plain({"a": [Path()]})


def test_embedded_json_contains_no_character_that_html_reads() -> None:
    text = embedded_json({"<a>": "&</script><!--]]>"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"<a>": "&</script><!--]]>"}


@pytest.mark.parametrize("name", ["", "../up", "a/b", "A", "a.html", "-a"])
def test_name_that_is_no_file_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not possible; give lower-case letters, digits and hyphens"):
        replace(demo(), name=name)


def test_page_is_written_to_a_folder_and_to_an_object_store(tmp_path: Path, s3_options: dict[str, str]) -> None:
    html, data = write_page(tmp_path / "new", demo())
    assert Path(html).read_text() == render_page(demo())
    assert json.loads(Path(data).read_text())["title"] == "Demo of lock"
    assert write_page("s3://lsr/pages", demo(), s3_options) == ("s3://lsr/pages/demo.html", "s3://lsr/pages/demo.json")
    write_page("s3://lsr/pages", demo("other"), s3_options)
    from lsr_prod.storage.folders import open_text

    with open_text("s3://lsr/pages/demo.json", s3_options) as file:
        assert json.load(file)["title"] == "Demo of other"


@pytest.fixture
def hostile_file(tmp_path: Path) -> str:
    return write_page(tmp_path, demo(HOSTILE))[0]


@pytest.mark.long
def test_hostile_page_is_accessible_printable_and_quiet(browser: Browser, hostile_file: str) -> None:
    assert problems_of(browser, hostile_file) == []


@pytest.mark.long
def test_charts_are_drawn_in_the_colors_of_the_scheme_and_have_a_table(browser: Browser, hostile_file: str) -> None:
    colors = set()
    for scheme in ("light", "dark"):
        with opened(browser, hostile_file, scheme=scheme) as (page, problems):  # type: ignore[arg-type]
            bar = page.locator("figure[data-chart=bars] svg .mark-rect path").first
            colors.add(bar.evaluate("one => getComputedStyle(one).fill"))
            bar.hover()
            page.wait_for_selector("#vg-tooltip-element.visible")
            assert "onerror" in page.locator("#vg-tooltip-element").inner_text()
            figure = page.locator("figure[data-chart=lines]")
            assert figure.locator("tbody tr").count() == 6
            assert not figure.locator("table").is_visible()
            figure.locator("summary").press("Enter")
            assert figure.locator("table").is_visible()
            assert problems == []
    assert len(colors) == 2
