"""GET /: a page for whoever opens the server in a browser."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from service.lifecycle import Status
from service.metrics import package_version
from service.routes.common import ServiceDep

router = APIRouter(include_in_schema=False)
_LINKS = (
    ("/docs", "API documentation (its page loads Swagger UI from a public CDN; /openapi.json is the same, offline)"),
    ("/v1/models", "The model and its limits"),
    ("/v1/constraints", "Constraint types, each with schema and example"),
    ("/v1/policies", "Policies and gate sources"),
    ("/v1/gates", "Gates that this server holds"),
    ("/health/ready", "Readiness"),
    ("/metrics", "Prometheus metrics"),
)
_EXAMPLE = """curl -s {url}/generate -H 'Content-Type: application/json' -d '{{
  "constraint": {{"type": "keywords", "keywords": ["dog", "ball", "beach"]}},
  "policy": {{"preset": "parallel_tail", "gate": {{"source": "fraction", "fraction": 0.3}}}},
  "seed": 7
}}'"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>astargate</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; color: #222; }}
pre {{ background: #f4f4f4; padding: 1rem; overflow-x: auto; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #181818; color: #ddd; }} pre {{ background: #242424; }}
a {{ color: #8ab4f8; }} }}
</style>
</head>
<body>
<h1>astargate {version}</h1>
<p>A server for masked diffusion language models that switches classifier-free guidance off, per request, as soon as it
stops paying. Model: {model}.</p>
<pre>{example}</pre>
<ul>
{links}
</ul>
</body>
</html>
"""


@router.get("/", response_class=HTMLResponse)
async def landing(service: ServiceDep) -> HTMLResponse:
    """What this server is, one request that works, and where to read on."""
    if service.status is Status.READY:
        spec = service.backend.model.spec
        model = f"{spec.name} ({spec.hash})"
    else:
        model = service.status.value
    links = "\n".join(f'<li><a href="{path}">{path}</a>: {escape(text)}</li>' for path, text in _LINKS)
    url = f"http://{service.settings.host}:{service.settings.port}"
    page = _PAGE.format(
        version=escape(package_version()), model=escape(model), example=escape(_EXAMPLE.format(url=url)), links=links
    )
    return HTMLResponse(page)
