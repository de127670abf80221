#!/bin/sh
# Whether a container is healthy: its index answers a query if LSR_PROD_INDEX names one; else Ray answers if a node runs
# here; else the command starts. Kubernetes does not read the health check of an image: manifests have probes of their own.
set -eu
if [ -n "${LSR_PROD_INDEX:-}" ]; then
    exec lsr-prod index warm "$LSR_PROD_INDEX"
elif [ -e "${RAY_TMPDIR:-/tmp}/ray/ray_current_cluster" ]; then
    exec ray health-check
else
    exec lsr-prod --version
fi
