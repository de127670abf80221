from contextlib import suppress
from pathlib import Path

import pytest

from lsr_prod.errors import SourceError
from lsr_prod.evaluation.collection import read_queries

SGML = """
<top>

<num> Number: 301
<title> International Organized
Crime &amp; Law

<desc> Description:
Identify organizations, e.g. <b>one</b>.
<narr> Narrative:
A relevant document names one.
</top>

<top>
<num> Number: 302 </num>
<title> Topic: Poliomyelitis and Post-Polio </title>
</top>
"""
XML = """<?xml version="1.0" encoding="UTF-8"?>
<!-- <topic number="0"><query>none</query></topic> -->
<topics task="x">
  <topic number="1" type="faceted">
    <query>coronavirus <!-- or --> origin</query>
    <question>what is the origin</question>
  </topic>
  <topic number='2'><title><![CDATA[a < b & c]]></title><query>other</query></topic>
  <TOPIC><ID>3</ID><TITLE>x&#233;y</TITLE></TOPIC>
  <topic number="4">
    A patient of 45 years
  </topic>
</topics>
"""


def _read(folder: Path, text: str) -> dict[str, str]:
    (folder / "topics").write_text(text)
    return dict(read_queries(str(folder / "topics")))


def test_topics_of_the_sgml_form_are_read(tmp_path: Path) -> None:
    assert _read(tmp_path, SGML) == {
        "301": "International Organized Crime & Law",
        "302": "Poliomyelitis and Post-Polio",
    }


def test_topics_of_the_xml_form_are_read(tmp_path: Path) -> None:
    expected = {"1": "coronavirus origin", "2": "a < b & c", "3": "xéy", "4": "A patient of 45 years"}
    assert _read(tmp_path, XML) == expected
    assert _read(tmp_path, " ".join(XML.split())) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '<!DOCTYPE topics [<!ENTITY a "b">]>\n<topic number="1"><title>&a;</title></topic>',
            "declares a document type",
        ),
        ("<top>\n<num> Number: 1\n<title> x\n\n</top>\n<top>\n<num> 2\n", "topics:6 begins a topic that does not end"),
        ("<top>\n<title> x\n</top>", "topics:1 is a topic without an id; each topic needs <num>"),
        ('<top>\n<num> 1 <title> x\n</top>\n\n<topic number="2"><desc>x</desc></topic>', "topics:5 .* without text"),
        ("<top>\n<num> 1 <title> x\n</top>\n<top>\n<num> 1 <title> x\n</top>", "topics:4 repeats the query id '1'"),
    ],
)
def test_invalid_topics_are_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        _read(tmp_path, text)


@pytest.mark.parametrize("piece", ["<top", "<top ", "<top>", "<!--", "<top>\n<num>", '<topic number="', "<![CDATA["])
def test_hostile_topics_are_refused_or_empty_in_linear_time(tmp_path: Path, piece: str) -> None:
    with suppress(SourceError):
        assert _read(tmp_path, "<top\n" + piece * 100_000) == {}
