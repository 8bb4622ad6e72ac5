"""Clean sentences for `mini`: permissively licensed text only (see the card, README.md beside this file)."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SPACES = re.compile(r"\s+")
_ALLOWED = re.compile(r"[a-z0-9 .,!?'\";:()&$%-]+")
_PLACEHOLDER = re.compile(r"^person\b|(?<!\ba )(?<!\bone )(?<!\bthe )(?<!\byoung )(?<!\bold )\bperson\b|^someone\b")
_STARTERS = frozenset(
    "a an the two three four five six many several some people children kids men women he she it they we i you his her "
    "their my our this that there these those one all both each every no when while after before as in on at if with "
    "by to".split()
)
_SUFFIXES = ("", "s", "es", "ed", "d", "ing", "er", "ers", "est")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One training text: lower-case, ended by punctuation; `concepts` are its benchmark keywords in surface form."""

    text: str
    source: str
    concepts: tuple[str, ...] = ()


def clean(text: str) -> str | None:
    """Normalised text, or None where it is no plain English sentence of two words or more."""
    if text.count('"') % 2:
        return None
    text = (
        _SPACES.sub(" ", text.strip().lower())
        .replace(" ,", ",")
        .replace(" .", ".")
        .replace(" !", "!")
        .replace(" ?", "?")
    )
    text = text.replace("n 't", "n't").replace(" 's", "'s")
    if text.startswith('"') and text.endswith('"') and text.count('"') == 2:
        text = text[1:-1].strip()
    text = re.sub(r"\.{2,}", ".", text)
    if not text or not _ALLOWED.fullmatch(text) or text.count(" ") < 1:
        return None
    return text if text[-1] in '.!?"' else text.rstrip(",;:- ") + "."


def inflections(lemma: str, irregular: dict[str, set[str]]) -> set[str]:
    """Surface forms that a lemma may take: suffix rules and WordNet's exception lists."""
    forms = {lemma + suffix for suffix in _SUFFIXES} | irregular.get(lemma, set())
    if lemma.endswith("e"):
        forms |= {lemma[:-1] + suffix for suffix in ("ing", "ed", "er")}
    elif lemma.endswith("y"):
        forms |= {lemma[:-1] + suffix for suffix in ("ies", "ied", "ier")}
    elif len(lemma) > 2:
        forms |= {lemma + lemma[-1] + suffix for suffix in ("ing", "ed", "er")}
    return forms


def read_irregular(folder: Path) -> dict[str, set[str]]:
    """Lemma -> irregular surface forms from WordNet's `*.exc` files in `folder`."""
    irregular: dict[str, set[str]] = {}
    for name in ("noun", "verb", "adj"):
        for line in (folder / f"{name}.exc").read_text().splitlines():
            surface, *lemmas = line.split()
            for lemma in lemmas:
                irregular.setdefault(lemma, set()).add(surface)
    return irregular


def surface_concepts(text: str, concepts: list[str], irregular: dict[str, set[str]]) -> tuple[str, ...]:
    """The words of `text` that realise `concepts`; () unless every concept is found."""
    words = set(re.findall(r"[a-z0-9']+", text))
    surfaces = [next(iter(sorted(words & inflections(concept, irregular))), None) for concept in concepts]
    return tuple(dict.fromkeys(word for word in surfaces if word)) if all(surfaces) else ()


def _is_sentence(text: str) -> bool:
    """False for image alt texts: placeholders ("person"), or an opening that no plain sentence of the set has."""
    first = text.split(" ", 1)[0].strip(",")
    return not _PLACEHOLDER.search(text) and (first in _STARTERS or first.endswith("s"))


def commongen(data: Path, name: str) -> Iterator[Sentence]:
    """CommonGen sentences with their concept sets in surface form."""
    irregular = read_irregular(data / "wordnet")
    with gzip.open(data / "commongen" / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            for target in record["targets"]:
                text = clean(target)
                if text and _is_sentence(text):
                    yield Sentence(text, "commongen", surface_concepts(text, record["concepts"], irregular))


def corpus_file(data: Path, name: str, source: str) -> Iterator[Sentence]:
    """One record a line of `corpus/<name>.txt.gz`."""
    with gzip.open(data / "corpus" / f"{name}.txt.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            text = clean(line)
            if text and (source == "tinystories" or not text.startswith(("an image", "image"))):
                yield Sentence(text, source)


def load_corpora(data: Path) -> dict[str, list[Sentence]]:
    """Source -> distinct sentences. `data` is the folder that SOURCES.md describes."""
    files = [
        commongen(data, "train.jsonl.gz"),
        commongen(data, "train_v1_0.jsonl.gz"),
        corpus_file(data, "coco_val2017_captions", "coco"),
        corpus_file(data, "coco_texygen_captions", "coco"),
        corpus_file(data, "tatoeba_eng", "tatoeba"),
        corpus_file(data, "tinystories_chunks", "tinystories"),
    ]
    seen: set[str] = set()
    corpora: dict[str, list[Sentence]] = {}
    for sentences in files:
        for sentence in sentences:
            if sentence.text not in seen:
                seen.add(sentence.text)
                corpora.setdefault(sentence.source, []).append(sentence)
    return corpora
