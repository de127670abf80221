#!/opt/lsr-prod/bin/python
"""Announce to Ray that this node ends: ``drain SECONDS``, in the hook before a pod or a machine stops.

Ray gives the node no new work, and the encode job sends its blocks elsewhere. ``RAY_ADDRESS`` names the cluster,
``POD_IP`` the address of this node. Exit codes: 0 announced, 1 not.
"""

import os
import sys
import time

import ray
from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DRAIN_NODE_REASON_PREEMPTION


def main() -> int:
    """Announce the end and say whether Ray accepted it."""
    seconds, address, own = float(sys.argv[1]), os.environ["RAY_ADDRESS"], os.environ["POD_IP"]
    ray.init(address, log_to_driver=False, logging_level="error")
    nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeManagerAddress"] == own]
    if not nodes:
        print(f"no living node of {address} has the address {own}", file=sys.stderr)
        return 1
    deadline = int((time.time() + seconds) * 1000)
    accepted, reason = GcsClient(address=address).drain_node(
        nodes[0]["NodeID"], DRAIN_NODE_REASON_PREEMPTION, "the machine is taken back", deadline
    )
    print(f"node {nodes[0]['NodeID'][:12]} ends in {seconds:g} s: {'announced' if accepted else reason}")
    return 0 if accepted else 1


if __name__ == "__main__":
    sys.exit(main())
