"""Command line options that are built from settings dataclasses, so that a field is described once.

A command takes its settings as one parameter. `from_settings` offers one option a field in its place: the field's
docstring is the help, its type and default are the option's. `OPTIONS` says once how a field of some name is offered
(one name for one thing on every command), and a command may say it otherwise.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from service.schemas.base import field_docs

PROMPTS: Final = "Prompts"
DECODING: Final = "Decoding"
MEASUREMENT: Final = "Measurement"
MACHINE: Final = "Machine"
FILES: Final = "Files"


@dataclasses.dataclass(frozen=True, slots=True)
class Opt:
    """How one field is offered as an option."""

    name: str = ""
    """Of the option, without dashes in front; empty: the field's, with dashes."""
    old: tuple[str, ...] = ()
    """Earlier names: still read, shown nowhere."""
    help: str = ""
    """Empty: the field's docstring."""
    minimum: float | None = None
    maximum: float | None = None
    panel: str | None = None
    """Heading of the help under which it stands."""
    default: Any = ...
    """Of the command, where it is not the field's."""
    shown: str = ""
    """What an empty default means."""
    repeated: bool = False
    """Of a list of names: the option may also be given again for each."""


OPTIONS: Final[Mapping[str, Opt]] = {
    "subtasks": Opt("family", ("subtasks",), panel=PROMPTS, repeated=True),
    "tasks": Opt("family", ("task", "tasks"), panel=PROMPTS, repeated=True),
    "families": Opt("family", ("families",), panel=PROMPTS, repeated=True),
    "prompts": Opt(minimum=1, panel=PROMPTS, shown="all"),
    "n": Opt("prompts", ("n",), panel=PROMPTS, shown="all"),
    "splits": Opt("split", panel=PROMPTS, shown="all"),
    "samples": Opt(minimum=1, panel=PROMPTS),
    "seed": Opt(panel=PROMPTS),
    "gen_length": Opt("canvas", ("gen-length",), minimum=1, panel=DECODING, shown="each family's"),
    "canvas": Opt(minimum=1, panel=DECODING, shown="each family's"),
    "steps": Opt(minimum=1, panel=DECODING, shown="each family's"),
    "weight": Opt("guidance-scale", ("weight",), panel=DECODING),
    "weights": Opt("guidance-scales", ("weights",), panel=DECODING),
    "temperature": Opt(minimum=0.0, maximum=5.0, panel=DECODING),
    "block_length": Opt(minimum=1, panel=DECODING, shown="the whole canvas"),
    "widths": Opt("tail-widths", panel=DECODING),
    "tail_widths": Opt(panel=DECODING),
    "rollouts": Opt(minimum=1, panel=MEASUREMENT),
    "trees": Opt(minimum=10, panel=MEASUREMENT),
    "model": Opt(help="`mini` or a checkpoint folder.", panel=MACHINE),
    "device": Opt(help="Torch device, such as cpu or cuda:0.", panel=MACHINE),
    "dtype": Opt(help="Precision of the weights: float32, bfloat16 or float16.", panel=MACHINE),
    "threads": Opt(help="Torch threads of a process.", minimum=1, panel=MACHINE),
    "jobs": Opt(minimum=1, panel=MACHINE),
    "max_rows": Opt(help="Rows of one forward pass.", minimum=2, panel=MACHINE),
    "invariant": Opt(
        "batch-invariant", help="The same bits whatever shares the batch; slower at light load.", panel=MACHINE
    ),
    "fluency_model": Opt(panel=MACHINE, shown="the shipped judge"),
}
"""By field name: how it is offered on every command."""


# -- commands ----------------------------------------------------------------------------------------------------------


class Command(TyperCommand):
    """A command that still reads the earlier names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Each earlier name becomes today's; the rest is typer's work."""
        names: Mapping[str, str] = getattr(self.callback, "old_names", {})
        return super().parse_args(ctx, [_renamed(argument, names) for argument in args])


def _renamed(argument: str, names: Mapping[str, str]) -> str:
    name, equals, value = argument.partition("=")
    return names.get(name, name) + equals + value


class _Group(TyperGroup):
    """A group whose options go to its command `run` where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """`astargate census --out x` means `astargate census run --out x`."""
        if args and args[0].startswith("-") and args[0] != "--help" and "run" in self.commands:
            args = ["run", *args]
        return super().parse_args(ctx, args)


def group(description: str) -> typer.Typer:
    """A group of commands; the one called `run` is meant where options follow the group's name at once."""
    return typer.Typer(cls=_Group, help=description, no_args_is_help=True)


def earlier_names(**names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command still reads an option under its earlier name: `earlier_names(gen_length="canvas")`."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        renamed = {f"--{_dashed(old)}": f"--{_dashed(new)}" for old, new in names.items()}
        known: Mapping[str, str] = getattr(function, "old_names", {})
        function.old_names = {**known, **renamed}  # type: ignore[attr-defined]
        return function

    return mark


@contextmanager
def failures(command: str, *errors: type[Exception], code: int = 2) -> Iterator[None]:
    """Each of `errors` ends the command: its message on standard error, `code` as exit status."""
    try:
        yield
    except errors as error:
        typer.echo(f"{command}: {error}", err=True)
        raise typer.Exit(code) from None


# -- options from settings ---------------------------------------------------------------------------------------------


def from_settings(
    settings: type,
    command: str,
    *,
    options: Mapping[str, Opt] | None = None,
    leave_out: Sequence[str] = (),
    panel: str | None = None,
    code: int = 2,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function with a parameter `settings` into a command with an option for each field of that dataclass.

    Fields in `leave_out` keep their defaults; those without a heading of their own stand under `panel`. A `ValueError`
    (a list that cannot be read, a setting that is refused, work that fails so) ends the command with exit status
    `code`; its message follows `command`.
    """
    offered = {
        field.name: (field, (options or {}).get(field.name, OPTIONS.get(field.name, Opt())))
        for field in dataclasses.fields(settings)
        if field.name not in leave_out
    }
    types = get_type_hints(settings)
    docs = field_docs(settings)
    built = [
        _parameter(field, option, types[name], option.help or docs.get(name, ""), option.panel or panel)
        for name, (field, option) in offered.items()
    ]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        others = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.name != "settings"
        ]
        plain = [parameter for parameter in others if parameter.annotation.__metadata__[0].rich_help_panel is None]
        parameters = [*plain, *built, *(parameter for parameter in others if parameter not in plain)]
        defaults = {parameter.name: parameter.default for parameter in parameters}

        def run(**given: Any) -> None:
            values = defaults | given
            with failures(command, ValueError, code=code):
                fields = {name: _value(values.pop(name), types[name], field) for name, (field, _) in offered.items()}
                function(settings=settings(**fields), **values)

        run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.old_names = getattr(function, "old_names", {}) | {  # type: ignore[attr-defined]
            f"--{old}": f"--{option.name or _dashed(name)}"
            for name, (_, option) in offered.items()
            for old in option.old
        }
        return run

    return decorate


def _parameter(
    field: dataclasses.Field[Any], option: Opt, kind: Any, described: str, panel: str | None
) -> inspect.Parameter:
    """The option of one field as a parameter that typer reads."""
    default = field.default if option.default is ... else option.default
    kind = _plain(kind)
    if get_origin(kind) is tuple:
        kind = list[str] if option.repeated else str
        if default is not dataclasses.MISSING:
            default = list(default) if option.repeated else _listed(default)
    elif get_origin(kind) is Literal:
        described = f"{described} One of {', '.join(map(str, get_args(kind)))}.".strip()
        kind = str
    empty = default is None or default in ("", [])
    if option.shown and empty:
        described = f"{described} (default: {option.shown})".strip()
    name = f"--{option.name or _dashed(field.name)}"
    info = typer.Option(
        f"{name}/--no-{name[2:]}" if kind is bool else name,
        help=literal(described),
        min=option.minimum,
        max=option.maximum,
        rich_help_panel=panel,
        show_default=not empty,
    )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
        annotation=Annotated[kind | None if default is None else kind, info],
    )


def literal(text: str) -> str:
    """Help as it stands: typer takes what is in square brackets for a style and leaves it out."""
    return text.replace("[", r"\[")


def _plain(kind: Any) -> Any:
    """The type itself where None is allowed as well."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    return kind


def _listed(values: Sequence[Any]) -> str:
    return ",".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _value(given: Any, kind: Any, field: dataclasses.Field[Any]) -> Any:
    """What the command line gave as a field's value. Raises `ValueError` where it is no such list or no such choice."""
    kind = _plain(kind)
    if isinstance(given, list):
        return tuple(name for text in given for name in names(text))
    if get_origin(kind) is tuple and isinstance(given, str):
        if given == "" and field.default == ():
            return ()
        return {float: numbers, int: wholes}.get(get_args(kind)[0], names)(given)
    if get_origin(kind) is Literal and given not in get_args(kind):
        raise ValueError(f"{field.name} {given!r} is unknown; use one of {', '.join(map(str, get_args(kind)))}")
    return given


# -- values ------------------------------------------------------------------------------------------------------------


def writable(path: Path | None, option: str, *, folder: bool = False) -> None:
    """Make the folders above a file (or `folder`) that is written at the end of long work, so that a path that cannot
    be written is refused before the work. Raises `ValueError` naming `option`.
    """
    if path is None:
        return
    above = path if folder else path.parent
    try:
        above.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be written: {error}") from None
    if path.is_dir() and not folder:
        raise ValueError(f"{option} {path} is a folder; name a file in it")
    if not all(os.access(place, os.W_OK) for place in (above, path) if place.exists()):
        raise ValueError(f"{option} {path} cannot be written; choose another place")


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas; blanks around them do not count. Raises `ValueError` where there is none."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ValueError(f"{text!r} names nothing; give names separated by commas")
    return parts


def numbers(text: str) -> tuple[float, ...]:
    """Numbers separated by commas; none where `text` is empty. Raises `ValueError`."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a list of numbers such as 0.5,1,2") from None


def wholes(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas; none where `text` is empty. Raises `ValueError`."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a list of whole numbers such as 1,2,8") from None
