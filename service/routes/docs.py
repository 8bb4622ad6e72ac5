"""GET /docs: Swagger UI from the package's own copy; nothing is loaded from another server."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

ASSETS: Final = "/docs/assets"
FILES: Final = Path(__file__).resolve().parents[1] / "swagger"
router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> HTMLResponse:
    """The API's documentation, to read and to try."""
    root = request.scope.get("root_path", "").rstrip("/")
    return get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="astargate",
        swagger_js_url=f"{root}{ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{root}{ASSETS}/favicon-32x32.png",
        swagger_ui_parameters={"validatorUrl": None},
    )


def mount(app: FastAPI) -> None:
    """Serve what the page loads."""
    app.mount(ASSETS, StaticFiles(directory=FILES), name="docs")
