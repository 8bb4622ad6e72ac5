"""`astargate run`: one prompt, decoded by a server or by a model that is loaded here."""

from __future__ import annotations

import json
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Annotated, Any, Final

import typer

from service.commands.options import DECODING, MACHINE, Opt, earlier_names, from_settings
from service.commands.run.options import RunOptions

CLIENT: Final = "astargate_client"
NO_CLIENT: Final = "--url needs the client: pip install ./clients/python, in a checkout (`make serve` does it)"
MODEL_HELP: Final = "Model to load: `mini`, a checkpoint folder or owner/name on the hub (`astargate models`)."


@earlier_names(gen_length="canvas", n="samples")
@from_settings(
    RunOptions,
    "run",
    panel=DECODING,
    options={
        "template": Opt(),
        "gen_length": Opt("canvas"),
        "steps": Opt(),
        "temperature": Opt(),
        "seed": Opt(),
        "n": Opt("samples"),
    },
)
def run(
    settings: RunOptions,
    prompt: Annotated[str, typer.Argument(help="What to write; may be empty with a constraint.")] = "",
    url: Annotated[
        str | None,
        typer.Option(
            envvar="ASTARGATE_BASE_URL", help="A running server; the model is loaded here where it is left out."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help=MODEL_HELP, rich_help_panel=MACHINE)] = "mini",
    device: Annotated[str, typer.Option(help="Torch device, such as cpu or cuda:0.", rich_help_panel=MACHINE)] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole response.")] = False,
) -> None:
    """Decode one prompt, here or on a server: the canvas fills in the terminal, then the text and what it cost."""
    from service.commands.run.events import FailedError, RefusedError  # noqa: PLC0415

    try:
        answer = _answered(settings.body(prompt), url, model, device, quiet=as_json)
    except RefusedError as error:
        typer.echo(f"run: {error}", err=True)
        raise typer.Exit(2) from None
    except FailedError as error:
        typer.echo(f"run: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))


def _answered(body: dict[str, Any], url: str | None, model: str, device: str, *, quiet: bool) -> dict[str, Any]:
    """The answer, shown while it grows in a terminal and in plain lines elsewhere. Raises `FailedError`."""
    from rich.console import Console  # noqa: PLC0415

    from service.commands.run.check import checked  # noqa: PLC0415
    from service.commands.run.events import FailedError  # noqa: PLC0415
    from service.commands.run.view import Screen, coloured, plain  # noqa: PLC0415

    if url is None:
        checked(body, model)  # before the screen says that a model is loaded
    console = Console(highlight=False)
    screen = None if quiet or not console.is_terminal else Screen(console, int(body["n"]))
    with ExitStack() as open_screens:
        if screen is not None:
            open_screens.enter_context(screen)
        if url is not None:
            if find_spec(CLIENT) is None:
                raise FailedError(NO_CLIENT)
            from service.commands.run.remote import ask  # noqa: PLC0415  (needs the client)

            answer = ask(url, body, screen)
        else:
            from service.commands.run.local import decode  # noqa: PLC0415  (loads torch)

            answer = decode(body, model=model, device=device, watch=screen)
    if screen is not None:
        console.print(coloured(answer, screen.canvases))
    elif not quiet:
        typer.echo(plain(answer))
    return answer
