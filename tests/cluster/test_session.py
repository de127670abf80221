import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings
from lsr_prod.errors import ConfigError

_LISTENERS = """
import json, os
from pathlib import Path
from lsr_prod.cluster import ray_session
from lsr_prod.config import RaySettings

def descendants(root):
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = set(), [root]
    while queue:
        found.update(fresh := children.get(queue.pop(), []))
        queue.extend(fresh)
    return found

def sockets(pids):
    inodes = set()
    for pid in pids:
        try:
            links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        inodes |= {link[8:-1] for link in links if link.startswith("socket:[")}
    return inodes

with ray_session(RaySettings(num_cpus=1)):
    import ray
    assert ray.get(ray.remote(lambda: 1).remote()) == 1
    mine = sockets(descendants(os.getpid()) | {os.getpid()})
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    print(json.dumps(sorted({row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in mine})))
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc, which only Linux has")
def test_local_cluster_listens_on_loopback_with_a_private_token(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    done = subprocess.run(
        [sys.executable, "-c", _LISTENERS],
        env=environment | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
    addresses = json.loads(done.stdout.splitlines()[-1])
    assert addresses
    for address in addresses:  # hexadecimal, little-endian words: 127.0.0.1, or ::1, or 127.0.0.1 mapped into IPv6
        assert address.endswith("0100007F") or address == "00000000000000000000000001000000", addresses


def test_existing_connection_is_used_and_left_open(ray_local: None) -> None:
    import ray

    with ray_session(RaySettings(address="127.0.0.1:1")):
        assert ray.is_initialized()
    assert ray.is_initialized()


def test_address_without_a_listener_raises_config_error() -> None:
    code = (
        "from lsr_prod.cluster import ray_session\nfrom lsr_prod.config import RaySettings\n"
        "from lsr_prod.errors import ConfigError\n"
        "try:\n    with ray_session(RaySettings(address='127.0.0.1:1')): pass\n"
        "except ConfigError as error:\n    print(error.field)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == ConfigError("ray.address", "", "").field, done.stderr
