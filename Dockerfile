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
# Without its dependencies, which an index of torch builds alone may lack: the next step adds them.
# hadolint ignore=DL3013
RUN pip install --no-deps ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} \
    "$(grep '^torch==' constraints.txt)${TORCH_VARIANT:++$TORCH_VARIANT}"
COPY . .
RUN pip install --constraint constraints.txt '.[postgres]'

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
