"""astargate judge, judge-fit, judge-sheet and label: the judge of readability, and what it is learned from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from service.commands.options import writable

Cache = Annotated[Path | None, typer.Option(help="Keep surprisals here for the next run.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of the language model.")]
Data = Annotated[Path, typer.Option(help="Folder that holds commongen/, collie/ and corpus/.", show_default=False)]


def run(
    texts: Annotated[str, typer.Argument(help="File with a text a line; - for standard input.")] = "-",
    cache: Cache = None,
    judge: Annotated[Path | None, typer.Option(help="Another judge than the shipped one (JSON).")] = None,
    threads: Threads = 1,
) -> None:
    """How probable it is that a strict reader accepts a text: a JSON line a text, and the share at the end."""
    try:
        whole = sys.stdin.read() if texts == "-" else Path(texts).read_text(encoding="utf-8")
        given = [line for line in whole.splitlines() if line.strip()]

        import torch  # noqa: PLC0415

        from gate_models.offline.judge.model.judge import Judge  # noqa: PLC0415

        torch.set_num_threads(threads)
        readings = Judge.load(judge, cache=cache).readable(given)
    except (ImportError, OSError, ValueError) as error:
        typer.echo(f"judge: {error}", err=True)
        raise typer.Exit(2) from None
    for text, reading in zip(given, readings, strict=True):
        line = {"probability": round(reading.probability, 4), "readable": reading.readable, "text": text}
        typer.echo(json.dumps(line, ensure_ascii=False))
    if given:
        share = sum(reading.readable for reading in readings) / len(given)
        typer.echo(f"{share:.3f} of {len(given)} readable", err=True)


def fit(
    sheet: Annotated[Path | None, typer.Option(help="Label sheet (default: the shipped one).")] = None,
    labels: Annotated[Path | None, typer.Option(help="Its labels (default: labels.jsonl beside the sheet).")] = None,
    out: Annotated[Path | None, typer.Option(help="The judge (default: the shipped file).")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the report here as Markdown.")] = None,
    cache: Cache = None,
    threads: Threads = 1,
) -> None:
    """Learn the judge from a labelled sheet and say by cross-validation how far it agrees with the reader."""
    try:
        import torch  # noqa: PLC0415

        from gate_models.offline.judge.validation import study  # noqa: PLC0415

        for path, option in ((out, "--out"), (report, "--report")):
            writable(path, option)
        torch.set_num_threads(threads)
        page = study.run(sheet=sheet, labels=labels, out=out, cache=cache)
    except (ImportError, OSError, ValueError) as error:
        typer.echo(f"judge-fit: {error}", err=True)
        raise typer.Exit(2) from None
    if report is not None:
        report.write_text(page, encoding="utf-8")
    typer.echo(page)


def sheet(
    data: Data,
    out: Annotated[Path, typer.Option(help="The sheet (JSONL).", show_default=False)],
    texts: Annotated[int, typer.Option(min=1, help="Texts of every family and policy.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the texts and of their order.")] = 0,
    model: Annotated[str, typer.Option(help="'mini' or a checkpoint folder.")] = "mini",
    policies: Annotated[
        str | None,
        typer.Option(help="Policies with temperatures, such as base@0.6,full_cfg:w1@1 (default: eleven of them)."),
    ] = None,
) -> None:
    """Decode texts under many policies, add texts by people, and write them as a sheet to label."""
    from gate_models.offline.evaluation import label_sheet  # noqa: PLC0415

    try:
        named = label_sheet.POLICIES if policies is None else label_sheet.read_policies(policies)
        written = label_sheet.run(data, out, texts, seed, model, named)
    except (OSError, ValueError) as error:
        typer.echo(f"judge-sheet: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{len(written)} texts in {out}")


def label(
    sheet: Annotated[Path, typer.Argument(help="A label sheet (JSONL).")],
    labels: Annotated[
        Path | None, typer.Option(help="File that the labels are added to (default: labels.jsonl beside the sheet).")
    ] = None,
    reader: Annotated[str, typer.Option(help="Who reads.")] = "reader-1",
    number: Annotated[int, typer.Option("--pass", min=1, help="Each pass has an order of its own.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the orders.")] = 0,
    most: Annotated[int | None, typer.Option(min=1, help="Stop after so many texts.")] = None,
) -> None:
    """Read the texts of a sheet one by one, their sources hidden, and say clean, acceptable or broken.

    Every answer is written at once; a later call goes on where this one ended. docs/judge.md has the definitions.
    """
    from gate_models.offline.judge.labels import label as labelling  # noqa: PLC0415
    from gate_models.offline.judge.labels.sheet import read_sheet  # noqa: PLC0415

    try:
        given = labelling.read(
            read_sheet(sheet),
            labels or sheet.with_name("labels.jsonl"),
            reader=reader,
            number=number,
            seed=seed,
            ask=lambda question: str(typer.prompt(question, prompt_suffix=" ")),
            say=typer.echo,
            most=most,
        )
    except (OSError, ValueError) as error:
        typer.echo(f"label: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{given} labels written")
