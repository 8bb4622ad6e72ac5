"""Field docs of the decoder's dataclasses, read from their attribute docstrings, so that the API's never differ."""

from __future__ import annotations

import ast
import inspect
from functools import cache


@cache
def field_docs(cls: type) -> dict[str, str]:
    """Attribute docstring by field name (fields without one are absent)."""
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{cls} is not defined by a class statement")
    docs: dict[str, str] = {}
    for field, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match following:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[field.target.id] = " ".join(text.split())
    return docs
