"""Networks that are built before their weights are read: no memory, and no time spent on random values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _NoInitialisation(TorchFunctionMode):
    """Leaves tensors as they are where `torch.nn.init` would fill them.

    On the meta device torch takes some of these fillings apart, for which it loads its compiler: two seconds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else given["tensor"]
        return func(*args, **given)


@contextmanager
def weightless() -> Iterator[None]:
    """Modules made inside have parameters of their shapes on the meta device, to be replaced by a checkpoint's."""
    with torch.device("meta"), _NoInitialisation():
        yield
