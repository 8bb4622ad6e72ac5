"""GET / and what it loads: the playground, a page without a build step that asks nothing of any other server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

WEB: Final = Path(__file__).resolve().parents[1] / "web"
ASSETS: Final = "/playground"
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",  # a plot behind an API key is fetched with the key, then shown
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Revalidated by ETag: an upgraded server must not meet yesterday's modules.
    "Cache-Control": "no-cache",
}
router = APIRouter(include_in_schema=False)


class Assets(StaticFiles):
    """Static files that carry the playground's headers."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


@router.get("/")
async def playground() -> FileResponse:
    """The page. Everything on it comes from this server's own API."""
    return FileResponse(WEB / "index.html", media_type="text/html", headers=HEADERS)


def mount(app: FastAPI) -> None:
    """Serve the page's styles and modules."""
    app.mount(ASSETS, Assets(directory=WEB), name="playground")
