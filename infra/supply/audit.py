"""Look up the known vulnerabilities of all locked packages; ``make audit`` runs this module.

    python -m infra.supply.audit [--service pypi|osv] [--osv-url URL] [--environment NAME]

pip-audit does the look-up. It reports success where the service knows none of the packages, for example behind a mirror
without advisories; here, a package that was not audited is a failure. ``requirements/audit-ignored.toml`` lists the
advisories that do not apply, each with a reason and its last day.

Prints the vulnerable packages and one line ``RESULT {json}``. Exit codes: 0 no known vulnerability, 1 vulnerabilities,
2 not all packages could be audited.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from infra.supply.locks import LOCKS, ROOT, Package, locked

__all__ = ["IGNORED", "Audit", "audit", "main", "read_ignored", "read_report", "rounds"]

IGNORED = ROOT / "requirements" / "audit-ignored.toml"


@dataclass(frozen=True, slots=True)
class Audit:
    """What an advisory service says about packages.

    Attributes:
        packages: number of packages that were looked up.
        vulnerable: package and version, with the advisories that apply.
        ignored: advisories that do not apply, as ``audit-ignored.toml`` says.
        not_audited: reason per package that the service does not know.
    """

    packages: int
    vulnerable: Mapping[str, list[str]]
    ignored: list[str]
    not_audited: Mapping[str, str]

    @property
    def exit_code(self) -> int:
        """Return 0: no known vulnerability; 1: there are some; 2: not all packages were audited."""
        return 1 if self.vulnerable else 2 if self.not_audited else 0


def read_ignored(text: str, today: date) -> set[str]:
    """Return the advisories that a file ignores today.

    Raises:
        ValueError: an entry has no reason or no last day.
    """
    found = set()
    for entry in tomllib.loads(text).get("ignored", []):
        if not (entry.get("id") and entry.get("reason") and type(entry.get("until")) is date):
            raise ValueError(f"{IGNORED.name}: {entry} needs id, reason and until (a date)")
        if entry["until"] >= today:
            found.add(entry["id"])
    return found


def read_report(report: Mapping[str, Any], ignored: set[str]) -> Audit:
    """Read the JSON of pip-audit.

    Args:
        report: its output.
        ignored: advisories that do not apply, by any of their names.
    """
    vulnerable: dict[str, list[str]] = {}
    passed, skipped = [], {}
    for package in report["dependencies"]:
        if "skip_reason" in package:
            skipped[package["name"]] = package["skip_reason"]
        for advisory in package.get("vulns", []):
            if ignored & {advisory["id"], *advisory.get("aliases", [])}:
                passed.append(advisory["id"])
                continue
            fixed = ", ".join(advisory.get("fix_versions", [])) or "no version"
            name = f"{package['name']} {package['version']}"
            vulnerable.setdefault(name, []).append(f"{advisory['id']} (fixed in {fixed})")
    return Audit(len(report["dependencies"]), vulnerable, passed, skipped)


def rounds(packages: Iterable[Package]) -> list[list[Package]]:
    """Return lists in which each name occurs once; a universal lock has two versions of some packages."""
    lists: list[dict[str, str]] = []
    for name, version in sorted(packages):
        free = next((one for one in lists if name not in one), None)
        if free is None:
            lists.append(free := {})
        free[name] = version
    return [sorted(one.items()) for one in lists]


def audit(packages: Iterable[Package], options: list[str]) -> dict[str, Any]:
    """Return the report of pip-audit, run in the environment of this process.

    Raises:
        RuntimeError: the service cannot be reached.
    """
    found: list[Any] = []
    for one in rounds(packages):
        with tempfile.TemporaryDirectory() as folder:
            lock = Path(folder) / "lock.txt"
            lock.write_text("".join(f"{name}=={version}\n" for name, version in one))
            command = [sys.executable, "-m", "pip_audit", "-r", str(lock), "--no-deps", "--disable-pip", *options]
            command += ["--format", "json", "--progress-spinner", "off"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        try:
            found += json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError) as error:
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RuntimeError(last) from error
    return {"dependencies": found}


def main(arguments: list[str] | None = None) -> int:
    """Audit the locks; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.supply.audit")
    parser.add_argument("--service", choices=("pypi", "osv"), default="pypi", help="advisory service")
    parser.add_argument("--osv-url", metavar="URL", help="address of another OSV service, with --service osv")
    parser.add_argument("--environment", choices=LOCKS, action="append", help="environment to audit; default: all")
    given = parser.parse_args(arguments)
    ignored = read_ignored(IGNORED.read_text(), datetime.now(UTC).date())
    packages = set().union(*(locked(name) for name in given.environment or LOCKS))
    options = ["--vulnerability-service", given.service, *(["--osv-url", given.osv_url] if given.osv_url else [])]
    try:
        found = read_report(audit(packages, options), ignored)
    except RuntimeError as error:
        sys.stderr.write(f"audit: the advisory service {given.service} cannot be used, nothing was audited: {error}\n")
        return 2
    for name, advisories in found.vulnerable.items():
        sys.stdout.write(f"{name}: {', '.join(advisories)}\n")
    if found.not_audited:
        name, reason = next(iter(found.not_audited.items()))
        sys.stderr.write(f"audit: {len(found.not_audited)} of {found.packages} packages were not audited; {reason}\n")
    counts = {"packages": found.packages, "vulnerable": len(found.vulnerable), "ignored": len(found.ignored)}
    sys.stdout.write(f"RESULT {json.dumps({**counts, 'not_audited': len(found.not_audited)})}\n")
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
