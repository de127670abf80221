"""Every locked package is in docs/licenses.md with the license that its metadata says."""

import pytest

from infra.supply.licenses import PAGE, installed, note_of, page, read_page
from infra.supply.locks import IMAGES, locked_by
from infra.supply.package_metadata import is_permissive, license_of

BSD = "Redistribution and use in source and binary\nforms, with or without modification"


def test_the_page_has_the_packages_of_the_locks():
    rows, wanted = read_page(), locked_by()
    assert {package: row[1] for package, row in rows.items()} == wanted, "run make licenses"
    assert page({package: rows[package] for package in wanted}) == PAGE.read_text(), "run make licenses"


@pytest.mark.long
def test_the_page_agrees_with_installed_packages():
    rows, found = read_page(), installed()
    same = rows.keys() & found.keys()
    assert len(same) > 150
    assert {package: rows[package][0] for package in same} == {package: found[package] for package in same}


def test_licenses_in_images_are_permissive_or_have_a_note():
    wrong = {
        name: spdx
        for (name, _), (spdx, environments) in read_page().items()
        if set(environments) & set(IMAGES) and not is_permissive(spdx) and not note_of(name, spdx)
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("expression", "field", "classifiers", "text", "expected"),
    [
        ("MIT", "anything", [], "", "MIT"),
        (None, "Apache 2.0", [], "", "Apache-2.0"),
        (None, "MPL-2.0 AND MIT", [], "", "MPL-2.0 AND MIT"),
        (None, "a long text", ["License :: OSI Approved :: MIT License"], "", "MIT"),
        (None, None, ["License :: OSI Approved :: BSD License"], BSD, "BSD-2-Clause"),
        (None, "BSD", [], f"{BSD} … Neither the name of the project", "BSD-3-Clause"),
        (None, None, ["License :: Other/Proprietary License"], "", None),
        (None, "", [], "", None),
    ],
)
def test_license_comes_from_the_metadata_of_a_package(expression, field, classifiers, text, expected):
    assert license_of(expression, field, classifiers, text) == expected


@pytest.mark.parametrize(
    ("spdx", "permissive"),
    [("MIT", True), ("GPL-2.0-only", False), ("MIT OR GPL-2.0-only", True), ("MIT AND MPL-2.0", False), ("?", False)],
)
def test_an_expression_is_permissive_if_all_its_parts_are(spdx, permissive):
    assert is_permissive(spdx) is permissive
