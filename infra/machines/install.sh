#!/bin/sh
# Install lsr_prod on this machine, as root, from the checkout that this script is in: install.sh [HEAD]
#
# HEAD is the host name of the head of a Ray cluster; without it the machine stands alone. LSR_PROD_LOCK=cuda installs the
# packages for NVIDIA GPUs. Run it again to upgrade, then restart the services. Earlier releases stay in /opt until they
# are deleted. Files in /etc/lsr-prod other than node.env are never changed.
set -eu
umask 022  # the user lsr reads what root writes
head=${1:-}
lock=${LSR_PROD_LOCK:-jobs}
cd "$(dirname "$0")/../.."

if [ -n "$head" ]; then
    at=$(getent ahostsv4 "$head" | awk 'NR == 1 { print $1 }')
    case $at in
        "") echo "$head has no IPv4 address" >&2; exit 1 ;;
        127.*) echo "$head is $at here, which no other machine reaches: correct /etc/hosts, or give its address" >&2; exit 1 ;;
    esac
fi

id lsr >/dev/null 2>&1 || useradd --system --user-group --home-dir /var/lib/lsr-prod --shell /usr/sbin/nologin lsr
install -d -o root -g lsr -m 750 /etc/lsr-prod
install -d -o lsr -g lsr -m 750 /var/lib/lsr-prod /var/cache/lsr-prod

# The wheel is built from the checkout, with packages of the lock; its time stamp is fixed, so that its digest is its content.
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
pip() { "$tools/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
python3 -m venv "$tools"
pip install --no-deps --require-hashes --only-binary :all: -r requirements/build.txt
SOURCE_DATE_EPOCH=315532800 pip wheel --no-deps --no-build-isolation --no-index --wheel-dir "$tools/wheels" .

# One folder for each content of lock and wheel; the link changes when all of it is there.
release=/opt/lsr-prod-$(cat "requirements/$lock.txt" "$tools"/wheels/*.whl | sha256sum | cut -c1-12)
if [ ! -e "$release/.complete" ]; then
    rm -rf "$release"
    python3 -m venv --without-pip "$release"
    pip --python "$release/bin/python" install --no-deps --require-hashes --only-binary :all: -r "requirements/$lock.txt"
    pip --python "$release/bin/python" install --no-deps --no-index "$tools"/wheels/lsr_prod-*.whl
    touch "$release/.complete"
fi
ln -sfnT "$release" /opt/lsr-prod

{
    echo "RAY_USAGE_STATS_ENABLED=0"
    echo "RAY_USAGE_STATS_REPORT_URL=http://127.0.0.1:9/"  # a head also reports that reports are off
    echo "HF_HUB_OFFLINE=1"
    echo "TOKENIZERS_PARALLELISM=false"
    echo "XDG_CACHE_HOME=/var/cache/lsr-prod"
    echo "RAY_TMPDIR=/var/lib/lsr-prod"
    if [ -n "$head" ]; then
        echo "HEAD=$at:6379"
        # The address of this machine in the network of the head; Ray listens there.
        echo "ADDRESS=$(ip -4 -oneline route get "$at" | sed -E 's/.* src ([0-9.]+).*/\1/')"
        echo "RAY_AUTH_MODE=token"
        echo "RAY_AUTH_TOKEN_PATH=/etc/lsr-prod/token"
    fi
} > /etc/lsr-prod/node.env
chgrp lsr /etc/lsr-prod/node.env
chmod 640 /etc/lsr-prod/node.env

install -m 755 infra/machines/lsr-run /usr/local/bin/lsr-run
install -m 644 infra/machines/*.service infra/machines/*.timer /etc/systemd/system/
systemctl daemon-reload
echo "installed $release"
