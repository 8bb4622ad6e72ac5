"""GET /docs: Swagger UI from the package's own copy; nothing is loaded from another server."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from service.routes.playground import HEADERS

ASSETS: Final = "/docs/assets"
FILES: Final = Path(__file__).resolve().parents[1] / "swagger"
_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> HTMLResponse:
    """The API's documentation, to read and to try."""
    root = request.scope.get("root_path", "").rstrip("/")
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="astargate",
        swagger_js_url=f"{root}{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{root}{ASSETS}/favicon-32x32.png",
        swagger_ui_parameters={"validatorUrl": None},
    )
    page.headers.update(_headers(bytes(page.body)))
    return page


def _headers(page: bytes) -> dict[str, str]:
    """What lets a browser run nothing but the package's own copy and the page's own lines, which are named by hash."""
    hashes = [f"'sha256-{base64.b64encode(sha256(script).digest()).decode()}'" for script in _SCRIPT.findall(page)]
    policy = "; ".join(
        (
            "default-src 'none'",
            " ".join(["script-src 'self'", *hashes]),
            "style-src 'self' 'unsafe-inline'",  # Swagger UI writes style attributes
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return {**HEADERS, "Content-Security-Policy": policy}


def mount(app: FastAPI) -> None:
    """Serve what the page loads."""
    app.mount(ASSETS, StaticFiles(directory=FILES), name="docs")
