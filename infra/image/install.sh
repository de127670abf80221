#!/bin/sh
# Install a lock and the wheel of lsr_prod into /opt/lsr-prod: install.sh search|jobs|cuda
set -eu
target=$1
python3 -m venv --without-pip /opt/lsr-prod
install() {
    /tools/bin/python -m pip --python /opt/lsr-prod/bin/python install --no-cache-dir --no-compile --no-deps \
        --disable-pip-version-check --root-user-action ignore "$@"
}
install --require-hashes --only-binary :all: -r "requirements/$target.txt"
install --no-index /wheels/lsr_prod-*.whl
/opt/lsr-prod/bin/python infra/image/slim.py "$target"
cp infra/image/healthcheck.sh /opt/lsr-prod/bin/healthcheck
chmod 755 /opt/lsr-prod/bin/healthcheck
if [ "$target" != search ]; then
    cp infra/image/drain.py /opt/lsr-prod/bin/drain
    chmod 755 /opt/lsr-prod/bin/drain
fi
if [ "$target" = cuda ]; then
    ln -s "$(/opt/lsr-prod/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia" /opt/lsr-prod/nvidia
fi
