"""astargate generate"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def run(
    prompt: Annotated[str, typer.Argument(help="What to write; may be empty with a constraint.")] = "",
    keywords: Annotated[str | None, typer.Option(help="Comma-separated words that the text must use.")] = None,
    constraint: Annotated[str | None, typer.Option(help="Any constraint, as a JSON object.")] = None,
    policy: Annotated[str, typer.Option(help="base, full_cfg, handoff or parallel_tail.")] = "full_cfg",
    fraction: Annotated[float | None, typer.Option(help="Hand off after this fraction of the steps.")] = None,
    guidance_scale: Annotated[float | None, typer.Option(help="w in c + w(c - u).")] = None,
    tail_width: Annotated[int | None, typer.Option(help="Tokens a step after the handoff.")] = None,
    gen_length: Annotated[int | None, typer.Option(help="Canvas length in tokens.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.")] = None,
    temperature: Annotated[float, typer.Option()] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Random where left out.")] = None,
    n: Annotated[int, typer.Option(help="Samples.")] = 1,
    url: Annotated[str | None, typer.Option(help="A running server; the model is loaded here otherwise.")] = None,
    model: Annotated[str, typer.Option(help="Model to load: 'mini' or a checkpoint folder.")] = "mini",
    device: Annotated[str, typer.Option()] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole response.")] = False,
) -> None:
    """Decode one prompt; print the text and what it cost."""
    from service.commands.remote import FailedError, ask  # noqa: PLC0415

    body: dict[str, Any] = {"prompt": prompt, "temperature": temperature, "n": n}
    body |= {k: v for k, v in {"gen_length": gen_length, "steps": steps, "seed": seed}.items() if v is not None}
    if keywords is not None and constraint is not None:
        raise typer.BadParameter("give --keywords or --constraint, not both")
    if keywords is not None:
        body["constraint"] = {"type": "keywords", "keywords": [word.strip() for word in keywords.split(",")]}
    if constraint is not None:
        try:
            body["constraint"] = json.loads(constraint)
        except json.JSONDecodeError as error:
            raise typer.BadParameter(f"--constraint is not JSON: {error}") from None
    body["policy"] = {"preset": policy}
    if fraction is not None:
        body["policy"]["gate"] = {"source": "fraction", "fraction": fraction}
    settings = {"guidance_scale": guidance_scale, "tail_width": tail_width}
    body["policy"] |= {name: value for name, value in settings.items() if value is not None}
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
        if sample["gate"]["fallback_reason"]:
            lines.append(f"  [fallback: {sample['gate']['fallback_reason']}]")
    return "\n".join(lines)
