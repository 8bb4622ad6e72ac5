"""What routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.lifecycle import Service


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]
