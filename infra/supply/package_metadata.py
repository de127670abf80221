"""License of a package, from its metadata."""

import re
from collections.abc import Iterable

__all__ = ["PERMISSIVE", "is_permissive", "license_of"]

PERMISSIVE = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
}
"""Licenses whose terms are met by keeping their texts, which wheels contain."""

# Fields and classifiers in lower case, with the SPDX identifier that they mean.
_SPDX = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "dual license": "Apache-2.0 OR BSD-3-Clause",  # python-dateutil
    "gpl-3.0": "GPL-3.0-only",
    "gplv2": "GPL-2.0-only",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "nvidia proprietary software": "LicenseRef-NVIDIA-Proprietary",
    "python software foundation license": "PSF-2.0",
}
_IDENTIFIER = re.compile(r"[A-Za-z0-9.+-]+-[0-9][A-Za-z0-9.+-]*|MIT|ISC|MIT-CMU|Zlib|Unlicense|LicenseRef-[A-Za-z-]+")
_BSD = "Redistribution and use in source and binary forms"
_THIRD_CLAUSE = re.compile(r"neither\s+the\s+names?|endorse\s+or\s+promote", re.IGNORECASE)


def license_of(expression: str | None, field: str | None, classifiers: Iterable[str], text: str = "") -> str | None:
    """Return the license of a package as an SPDX expression; None if its metadata says too little.

    Args:
        expression: its ``License-Expression``.
        field: its ``License``, which may be any text.
        classifiers: all its classifiers.
        text: the text of its license, which tells the BSD licenses apart.
    """
    if expression:
        return expression
    said = (field or "").strip()
    if said.lower() in _SPDX:
        return _SPDX[said.lower()]
    parts = [part for part in re.split(r" AND | OR |[()]", said) if part.strip()]
    if parts and all(_IDENTIFIER.fullmatch(part.strip()) for part in parts):
        return said
    named = {name.rsplit(" :: ", 1)[-1].lower() for name in classifiers if name.startswith("License :: OSI")}
    known = sorted({_SPDX[name] for name in named if name in _SPDX})
    if known:
        return " OR ".join(known)
    whole = " ".join(f"{said} {text}".split())
    if _BSD in whole:
        return "BSD-3-Clause" if _THIRD_CLAUSE.search(whole) else "BSD-2-Clause"
    return "BSD-3-Clause" if "BSD 3-Clause" in whole else None


def is_permissive(spdx: str) -> bool:
    """Return whether every part of an SPDX expression is permissive, or one of its alternatives."""
    if " OR " in spdx:
        return any(is_permissive(part.strip("() ")) for part in spdx.split(" OR "))
    return all(part.strip("() ") in PERMISSIVE for part in spdx.split(" AND "))
