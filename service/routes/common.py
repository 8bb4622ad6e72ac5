"""What routes share: access to the service, and the plain JSON answer of a decoded request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from starlette.responses import Response

from decoding.engine.handle import DecodingResult
from service.generation.prepare import Prepared
from service.http.disconnect import unless_gone
from service.lifecycle import Service


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


async def decoded(
    request: Request, service: Service, prepared: Prepared, content: Callable[[list[DecodingResult]], bytes]
) -> Response:
    """The plain answer; `content` writes its JSON on a worker thread. Nothing decodes for a client that is gone."""

    async def decode() -> bytes:
        async with service.generation(prepared, request.scope["path"]) as generation:
            return await service.work(partial(content, await generation.outcomes()))

    return Response(await unless_gone(request.receive, decode()), media_type="application/json")
