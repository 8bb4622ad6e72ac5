"""Sentences by people, as a reader sees them: `mini`'s training text in readable form, best known sources first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from decoding.mini.corpus import load_corpora
from decoding.models.bert_mini.codec import readable

ORDER: Final = ("commongen", "coco", "tinystories", "tatoeba")


def human_sentences(data: Path) -> Iterator[tuple[str, str, str]]:
    """Source, cleaned and readable text of every training sentence. `data`: the folder with commongen/ and corpus/."""
    corpora = load_corpora(data)
    for source in (*ORDER, *sorted(corpora.keys() - set(ORDER))):
        for sentence in corpora.get(source, ()):
            yield source, sentence.text, readable(sentence.text)
