"""Whether a call can be, found out in a fraction of a second: before torch is loaded, and with it the model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from decoding.constraints import ConstraintError, parse
from decoding.models.checkpoint import CheckpointError
from decoding.models.generation import GenerationConfig, read_generation_config
from decoding.models.hub import is_hub_id
from decoding.policy.checks import PolicyError
from decoding.request.validation import JobError
from service.commands.run.events import FailedError, RefusedError
from service.generation.job import check_prompt, policy_of
from service.generation.request import CanvasRequest
from service.http.errors import ApiError, from_validation
from service.schemas.generate import GenerateRequest

SHIPPED = "mini"


def checked(body: dict[str, Any], model: str) -> GenerateRequest:
    """The request of `body`, as far as it can be judged without the model.

    Raises `RefusedError` where the call is at fault, `FailedError` where the model's folder is.
    """
    try:
        request = GenerateRequest.model_validate(body)
    except ValidationError as error:
        located = [{**detail, "loc": ("body", *detail["loc"])} for detail in error.errors()]
        raise RefusedError(str(from_validation(located, GenerateRequest))) from None
    if request.audit_share is not None:
        raise RefusedError("audit_share needs a server: nothing is audited here")
    try:
        defaults = generation_defaults(model)
        asked = CanvasRequest.of(request, samples=request.n)
        check_prompt(asked, None if request.constraint is None else parse(request.constraint))
        policy_of(asked, defaults, request.gen_length)
    except CheckpointError as error:
        raise FailedError(str(error)) from None
    except (ApiError, ValueError) as error:
        raise refused(error) from None
    return request


def refused(error: Exception) -> RefusedError:
    """What a user reads of an error that the API would answer with 422; it names the field."""
    match error:
        case ConstraintError():
            return RefusedError(str(error.under("constraint")))
        case PolicyError():
            return RefusedError(f"policy.{error.param} {error}")
        case JobError():
            return RefusedError(f"{error.param} {error}")
    return RefusedError(str(error))


def generation_defaults(model: str) -> GenerationConfig:
    """What the model does where a request leaves things open; the paper's, while a checkpoint is still on the hub.

    Raises `CheckpointError` where there is no such folder.
    """
    folder = Path(str(files("decoding.mini"))) if model == SHIPPED else Path(model)
    if not folder.is_dir():
        if is_hub_id(model):
            return GenerationConfig()
        raise CheckpointError(f"there is no model {model!r}: neither a folder nor owner/name; see `astargate models`")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is no checkpoint: it has no config.json")
    return read_generation_config(folder)
