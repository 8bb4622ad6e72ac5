ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
# pip's index is the builder's choice; TORCH_INDEX_URL is one that has builds of torch such as 2.13.0+cpu.
# TORCH_VARIANT: "cpu", one of CUDA such as "cu130", or "" for the plain version of pip's index, which has CUDA on x86_64.
# A build that the index lacks fails here, rather than become an image of another kind.
ARG PIP_INDEX_URL
ARG TORCH_INDEX_URL
ARG TORCH_VARIANT=cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/astargate
ENV PATH=/opt/astargate/bin:$PATH
WORKDIR /src
COPY constraints.txt ./
COPY deploy/requirements deploy/requirements
# Nothing but files whose hashes are listed, without what a list leaves out.
RUN pip install --require-hashes --no-deps -r deploy/requirements/server.txt -r deploy/requirements/postgres.txt
# torch has no hash here: each of its builds has files of its own. Without its dependencies, which an index of torch builds
# alone may lack: those of a CPU build are there already, the next step adds the libraries of CUDA.
# hadolint ignore=DL3013
RUN pip install --no-deps ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} \
    "$(grep '^torch==' constraints.txt)${TORCH_VARIANT:++$TORCH_VARIANT}"
COPY . .
RUN pip install --no-build-isolation --constraint constraints.txt '.[postgres]' && pip check
# The bill of materials, by a tool that stays out of the image.
RUN python -m venv /opt/release \
    && /opt/release/bin/pip install --require-hashes --no-deps -r deploy/requirements/release.txt \
    && /opt/release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
    --output-file /opt/astargate/sbom.cdx.json /opt/astargate/bin/python

FROM python:${PYTHON_VERSION}-slim
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data astargate \
    && install -d -o astargate -g astargate /data
COPY --from=build /opt/astargate /opt/astargate
ENV PATH=/opt/astargate/bin:$PATH HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 \
    ASTARGATE_DATABASE=sqlite:////data/astargate.db
USER 10001:10001
# The only folder that is written to: the rest of the image may be mounted read-only (with a tmpfs on /tmp).
WORKDIR /data
VOLUME /data
EXPOSE 8000
# http.client rather than urllib: it ignores proxy variables.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8000, timeout=2); c.request('GET', '/health/live'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["astargate", "serve", "--host", "0.0.0.0"]
