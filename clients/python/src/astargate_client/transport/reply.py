"""Base of everything that the server sends."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, ValidatorFunctionWrapHandler, field_validator


class Reply(BaseModel):
    """Tolerates a newer server: unknown fields are kept as attributes, unknown words of an enumeration as strings."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=(), populate_by_name=True)
    _request_id: str | None = PrivateAttr(default=None)

    @property
    def request_id(self) -> str | None:
        """Id of the request that this answers, for the server's operator; None inside another answer."""
        return self._request_id

    def with_request_id(self, request_id: str) -> Self:
        """The same answer, which knows its request."""
        self._request_id = request_id
        return self

    @field_validator("*", mode="wrap")
    @classmethod
    def _unknown_words_pass(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if isinstance(value, str) and all(one["type"] == "literal_error" for one in error.errors()):
                return value
            raise
