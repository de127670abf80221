"""A stand-in for systemctl and journalctl on machines without systemd: it runs the commands of units as the units say.

    python systemctl.py systemctl start lsr-night
    python systemctl.py journalctl --unit lsr-night --lines 60

It has the arguments that docs/deploy.md uses, and refuses others. A setting that it neither applies nor knows as one
that only restricts a service is refused, so that no unit works here by what it leaves out.
"""

import argparse
import contextlib
import os
import pwd
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

UNITS = Path("/etc/systemd/system")
STATE = Path("/var/lib/systemd-stand-in")
_APPLIED = """AssertPathExists CacheDirectory CacheDirectoryMode Environment EnvironmentFile ExecStart Group LimitNOFILE
StateDirectory StateDirectoryMode Type User WorkingDirectory OnCalendar TimeoutStopSec"""
_NO_EFFECT = """After Description NoNewPrivileges Persistent ProtectControlGroups ProtectHome ProtectKernelModules
ProtectKernelTunables ProtectSystem RandomizedDelaySec Restart RestartPreventExitStatus RestartSec RestrictSUIDSGID
StartLimitBurst StartLimitIntervalSec TimeoutStartSec WantedBy Wants"""
_KNOWN = {*_APPLIED.split(), *_NO_EFFECT.split()}

Settings = dict[str, list[str]]


def load(name: str) -> Settings:
    """Return the settings of a unit, each with all of its values."""
    path = UNITS / name
    if not path.exists():
        sys.exit(f"Unit {name} not found.")
    settings: Settings = defaultdict(list)
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith(("#", "[")):
            continue
        key, _, value = line.partition("=")
        if key not in _KNOWN:
            sys.exit(f"{path}: {key} is unknown")
        settings[key].append(value.strip())
    return settings


def full(name: str) -> str:
    """Return the name of a unit with its kind."""
    return name if name.endswith((".service", ".timer")) else f"{name}.service"


def start(name: str) -> int:
    """Start a unit; a unit of type oneshot is waited for."""
    settings = load(name)
    for path in settings["AssertPathExists"]:
        if not Path(path).exists():
            sys.exit(f"Assertion failed on job for {name}: {path}")
    if name.endswith(".timer"):
        load(name.replace(".timer", ".service"))
        _note(name, "active")
        return 0
    if is_active(name):
        return 0
    user = pwd.getpwnam(settings["User"][-1])
    for kind, parent in (("StateDirectory", "/var/lib"), ("CacheDirectory", "/var/cache")):
        for folder in settings[kind]:
            place = Path(parent, folder)
            place.mkdir(exist_ok=True)
            place.chmod(int(settings[f"{kind}Mode"][-1], 8))
            os.chown(place, user.pw_uid, user.pw_gid)
    environment = _environment(settings, user)
    command = [_expand(word, environment) for word in shlex.split(settings["ExecStart"][-1])]
    identity = ["setpriv", f"--reuid={user.pw_name}", f"--regid={settings['Group'][-1]}", "--init-groups"]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # systemd may exceed it, a container may not
    files = min(int(settings["LimitNOFILE"][-1]), most)
    STATE.mkdir(exist_ok=True)
    with (STATE / f"{name}.log").open("ab") as log:
        program = subprocess.Popen(
            [*identity, "--no-new-privs", *command],
            cwd=settings["WorkingDirectory"][-1],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
        )
    _note(name, str(program.pid))
    if settings["Type"][-1:] != ["oneshot"]:
        return 0
    code = program.wait()
    if code:
        sys.stderr.write(f"Job for {name} failed with exit code {code}.\n")
    return int(code != 0)


def stop(name: str) -> int:
    """End all programs of a unit, by force after its time-out."""
    pid = _noted(name)
    _note(name, "")
    if not pid.isdigit():
        return 0
    end = time.monotonic() + int((load(name)["TimeoutStopSec"] or ["90"])[-1])
    os.kill(int(pid), signal.SIGTERM)
    while _alive(int(pid)) and time.monotonic() < end:
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(pid), signal.SIGKILL)
    return 0


def is_active(name: str) -> bool:
    """Return whether the program of a unit runs, or its timer is set."""
    noted = _noted(name)
    return noted == "active" or (noted.isdigit() and _alive(int(noted)))


def _environment(settings: Settings, user: pwd.struct_passwd) -> dict[str, str]:
    environment = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}
    pairs = [line for value in settings["Environment"] for line in shlex.split(value)]
    for name in settings["EnvironmentFile"]:
        path = Path(name.removeprefix("-"))
        if path.exists() or not name.startswith("-"):
            pairs += [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return environment | dict(pair.split("=", 1) for pair in pairs)


def _expand(word: str, environment: dict[str, str]) -> str:
    for name, value in environment.items():
        word = word.replace(f"${{{name}}}", value)
    if "${" in word:
        sys.exit(f"{word}: a variable is not set")
    return word


def _note(name: str, text: str) -> None:
    STATE.mkdir(exist_ok=True)
    (STATE / name).write_text(text)


def _noted(name: str) -> str:
    return (STATE / name).read_text() if (STATE / name).exists() else ""


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def systemctl(arguments: list[str]) -> int:
    """Run a command of systemctl."""
    parser = argparse.ArgumentParser(prog="systemctl")
    parser.add_argument("verb")
    parser.add_argument("units", nargs="*")
    parser.add_argument("--now", action="store_true")
    given = parser.parse_intermixed_args(arguments)
    units = [full(name) for name in given.units]
    if given.verb == "daemon-reload":
        units = [path.name for path in UNITS.glob("lsr-*")]
        return int(not all(load(name) for name in units))
    if given.verb == "enable" and not all(load(name)["WantedBy"] for name in units):
        sys.exit(f"{units} have no installation config")
    actions: dict[str, list[Callable[[str], int]]] = {
        "enable": [start] if given.now else [],
        "disable": [stop] if given.now else [],
        "start": [start],
        "stop": [stop],
        "restart": [stop, start],
        "is-active": [lambda name: int(not is_active(name))],
        "list-timers": [_next],
    }
    if given.verb not in actions:
        sys.exit(f"{given.verb} is not here")
    return max((action(name) for name in units for action in actions[given.verb]), default=0)


def _next(name: str) -> int:
    times = ["systemd-analyze", "calendar", *load(name)["OnCalendar"]]
    return subprocess.run(times, check=False).returncode if is_active(name) else 0


def journalctl(arguments: list[str]) -> int:
    """Print the end of the output of a unit."""
    parser = argparse.ArgumentParser(prog="journalctl")
    parser.add_argument("--unit", type=full, required=True)
    parser.add_argument("--lines", type=int, default=10)
    parser.add_argument("--output", choices=("cat",))
    given = parser.parse_intermixed_args(arguments)
    lines = (STATE / f"{given.unit}.log").read_text(errors="replace").splitlines()
    sys.stdout.write("\n".join(lines[-given.lines :]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit({"systemctl": systemctl, "journalctl": journalctl}[sys.argv[1]](sys.argv[2:]))
