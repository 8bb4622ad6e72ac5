ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
# pip's index is the builder's choice. On x86_64 name an index of CPU builds in TORCH_INDEX_URL, or the image carries CUDA.
ARG PIP_INDEX_URL
ARG TORCH_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/astargate
ENV PATH=/opt/astargate/bin:$PATH
WORKDIR /src
COPY constraints.txt ./
# Without its dependencies, which an index of torch builds alone may lack: the next step adds them.
RUN pip install --no-deps ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} --constraint constraints.txt torch
COPY . .
RUN pip install --constraint constraints.txt .

FROM python:${PYTHON_VERSION}-slim
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data astargate \
    && install -d -o astargate -g astargate /data
COPY --from=build /opt/astargate /opt/astargate
ENV PATH=/opt/astargate/bin:$PATH HOME=/data PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
USER astargate
# The only folder that is written to: the rest of the image may be mounted read-only (with a tmpfs on /tmp).
WORKDIR /data
VOLUME /data
EXPOSE 8000
# http.client rather than urllib: it ignores proxy variables.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8000, timeout=2); c.request('GET', '/health/live'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["astargate", "serve", "--host", "0.0.0.0"]
