"""`astargate generate`: one prompt, decoded by a server or by a model that is loaded here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from service.commands.options import DECODING, MACHINE, Opt, earlier_names, from_settings


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What a text is asked for on the command line."""

    keywords: str | None = None
    """Comma-separated words that the text must use."""
    constraint: str | None = None
    """Any constraint, as a JSON object."""
    policy: str | None = None
    """base, full_cfg, handoff, parallel_tail, reopen_repair or auto."""
    defaults: str | None = None
    """Where what is left open comes from: model (default) or paper."""
    fraction: float | None = None
    """Hand off after this fraction of the steps."""
    on_fallback: str | None = None
    """Where no gate fits: drained (default), full_cfg, base or reject."""
    guidance_scale: float | None = None
    """w in c + w(c - u)."""
    tail_width: int | None = None
    """Tokens a step after the handoff."""
    template: str | None = None
    """A text with blanks to fill, such as 'A dog [blank:3-5] the ball.'."""
    gen_length: int | None = None
    """Canvas length in tokens."""
    steps: int | None = None
    """Denoising steps."""
    temperature: float | None = None
    """Sampling temperature."""
    seed: int | None = None
    """Random where left out."""
    n: int = 1
    """Texts of the prompt."""

    def __post_init__(self) -> None:
        if self.keywords is not None and self.constraint is not None:
            raise typer.BadParameter("give --keywords or --constraint, not both")

    def body(self, prompt: str) -> dict[str, Any]:
        """The request as JSON; what is not given is left to the server."""
        names = ("template", "temperature", "gen_length", "steps", "seed")
        given = {name: getattr(self, name) for name in names}
        body: dict[str, Any] = {"prompt": prompt, "n": self.n, **_set(given)}
        if self.keywords is not None:
            body["constraint"] = {"type": "keywords", "keywords": [word.strip() for word in self.keywords.split(",")]}
        if self.constraint is not None:
            try:
                body["constraint"] = json.loads(self.constraint)
            except json.JSONDecodeError as error:
                raise typer.BadParameter(f"--constraint is not JSON: {error}") from None
        policy: dict[str, Any] = {"preset": self.policy, "defaults": self.defaults, "on_fallback": self.on_fallback}
        policy |= {"guidance_scale": self.guidance_scale, "tail_width": self.tail_width}
        if self.fraction is not None:
            policy["gate"] = {"source": "fraction", "fraction": self.fraction}
        body["policy"] = _set(policy)
        return body


def _set(values: dict[str, Any]) -> dict[str, Any]:
    """Those of `values` that were given."""
    return {name: value for name, value in values.items() if value is not None}


@earlier_names(gen_length="canvas", n="samples")
@from_settings(
    GenerateOptions,
    "generate",
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
    settings: GenerateOptions,
    prompt: Annotated[str, typer.Argument(help="What to write; may be empty with a constraint.")] = "",
    url: Annotated[str | None, typer.Option(help="A running server; the model is loaded here otherwise.")] = None,
    model: Annotated[
        str, typer.Option(help="Model to load: `mini` or a checkpoint folder.", rich_help_panel=MACHINE)
    ] = "mini",
    device: Annotated[str, typer.Option(help="Torch device, such as cpu or cuda:0.", rich_help_panel=MACHINE)] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole response.")] = False,
) -> None:
    """Decode one prompt; print the text and what it cost."""
    from service.commands.remote import FailedError, ask  # noqa: PLC0415

    body = settings.body(prompt)
    try:
        answer = ask(url, body) if url else _decode(body, model, device)
    except FailedError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else _readable(answer))


def _decode(body: dict[str, Any], model: str, device: str) -> dict[str, Any]:
    from service.commands.local import decode  # noqa: PLC0415  (loads torch)

    return decode(body, model=model, device=device)


def _readable(answer: dict[str, Any]) -> str:
    lines = []
    for sample in answer["samples"]:
        spent = sample["forward_evaluations"]
        verdict = {True: "satisfied", False: "not satisfied", None: "no constraint"}[sample["satisfied"]]
        ledger = (
            f"{spent['total']} forward evaluations ({spent['conditional']} conditional, "
            f"{spent['unconditional']} unconditional); full CFG {spent['full_cfg_equivalent']}, saved {spent['saved']}"
        )
        lines += [sample["text"], f"  [{verdict}; seed {sample['seed']}; {ledger}]"]
        lines.append(f"  [{_decided(sample['gate'])}]")
    return "\n".join(lines)


def _decided(gate: dict[str, Any]) -> str:
    """What became of guidance, and on what evidence."""
    step = "" if gate["handoff_step"] is None else f" before step {gate['handoff_step']}"
    parts = [f"gate {gate['source']}: {gate['decision']}{step}; evidence: {gate['evidence']}"]
    if lost := gate["measured_loss"]:
        interval = f"[{lost['low']:+.2f}, {lost['high']:+.2f}]"
        parts.append(f"loss of success {lost['loss']:+.2f} {interval} on {lost['pairs']} pairs")
    if gate["fallback_reason"]:
        parts.append(f"fallback: {gate['fallback_reason']}")
    return "; ".join(parts)
