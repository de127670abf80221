# Images of lsr_prod; docs/image.md describes them.
#
#   search  the query library with ONNX Runtime: opens an index and searches it
#   jobs    every job that needs no torch, on CPUs: encode, index, reindex, evaluate, maintain, serve
#   cuda    all jobs on NVIDIA GPUs: the same and train, export, mine
#
# A build argument names the base: a Debian or Ubuntu with python3 3.11 or 3.12 and its venv module. Pin it by digest.
ARG BASE=python:3.11-slim-bookworm


# ---- the wheel of lsr_prod, and what installs packages; nothing of this stage is in an image but the wheel ----
FROM ${BASE} AS tools
WORKDIR /build
# The compiler makes the kernels of lsr_prod; strip, of binutils, removes symbol tables. Both come with the base.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends binutils gcc libc6-dev python3-dev && rm -rf /var/lib/apt/lists/*
COPY requirements/build.txt requirements/
# The configuration of pip (index, proxy, certificates) is a secret of the build and remains in no layer.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /tools \
    && /tools/bin/python -m pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements/build.txt
COPY pyproject.toml build_kernels.py README.md LICENSE ./
COPY lsr_prod lsr_prod
COPY lsr_prod_contrib lsr_prod_contrib
RUN SOURCE_DATE_EPOCH=315532800 /tools/bin/python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .
COPY infra/image infra/image


# ---- environments: packages by hash, without pip ----
FROM tools AS jobs-environment
COPY requirements/jobs.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf infra/image/install.sh jobs

FROM tools AS search-environment
COPY requirements/search.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf infra/image/install.sh search


# ---- what the images share: user, environment, labels ----
FROM ${BASE} AS runtime
ARG BASE
ARG VERSION=0
ARG REVISION=unknown
# The root file system can be read-only: home folder, caches and scratch are in /tmp, which has to be writable.
# hadolint ignore=DL3064
ENV PATH=/opt/lsr-prod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    USER=lsr \
    LANG=C.UTF-8 \
    XDG_CACHE_HOME=/tmp/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HUB_OFFLINE=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    RAY_USAGE_STATS_REPORT_URL=http://127.0.0.1:9/ \
    TOKENIZERS_PARALLELISM=false
LABEL org.opencontainers.image.title="lsr_prod" \
      org.opencontainers.image.description="Learned sparse retrieval in production" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/lsr-prod/lsr_prod" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
RUN groupadd --gid 10001 lsr && useradd --uid 10001 --gid lsr --create-home --shell /bin/bash lsr
WORKDIR /home/lsr


# ---- images ----
FROM runtime AS search
COPY --from=search-environment /opt/lsr-prod /opt/lsr-prod
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["healthcheck"]
CMD ["lsr-prod", "--help"]

FROM runtime AS jobs
COPY --from=jobs-environment /opt/lsr-prod /opt/lsr-prod
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["healthcheck"]
CMD ["lsr-prod", "--help"]

# CUDA comes from the packages of the lock, so the base needs no CUDA; the driver comes from the machine.
FROM tools AS cuda-environment
COPY requirements/cuda.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf infra/image/install.sh cuda

FROM runtime AS cuda
# ONNX Runtime finds the libraries of the packages there; torch loads them by itself.
ENV LD_LIBRARY_PATH=/opt/lsr-prod/nvidia/cu13/lib:/opt/lsr-prod/nvidia/cudnn/lib \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=cuda-environment /opt/lsr-prod /opt/lsr-prod
USER 10001:10001
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["healthcheck"]
CMD ["lsr-prod", "--help"]
