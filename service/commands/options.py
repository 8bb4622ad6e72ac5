"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Subtasks = Annotated[str, typer.Option(help="Subtasks separated by commas, or `all`.")]
PromptsASubtask = Annotated[int | None, typer.Option(min=1, help="Prompts a subtask (default: all it has).")]
Model = Annotated[str, typer.Option(help="`mini` or a checkpoint folder.")]
MaxRows = Annotated[int, typer.Option(min=2, help="Rows a forward.")]
BatchInvariant = Annotated[bool, typer.Option(help="Bit-equal whatever shares the batch.")]
