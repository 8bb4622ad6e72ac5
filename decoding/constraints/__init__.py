"""Success predicates: deterministic, judge-free tests of a finished text (paper, appendix "Constraint Families").

`parse` turns a JSON object into a validated `Constraint`; its `evaluate` gives the binary verdict and a graded score.
"""

from decoding.constraints.base import Check, Constraint, ConstraintError, Verdict
from decoding.constraints.cognac import Avoid
from decoding.constraints.collie import CollieC06a, CollieC07
from decoding.constraints.compose import AllOf
from decoding.constraints.ifeval import CapitalFrequency, KeywordFrequency, LetterFrequency, NoComma
from decoding.constraints.keywords import Keywords
from decoding.constraints.length import LengthRatio, WordCount
from decoding.constraints.registry import (
    FAMILIES,
    FAMILIES_OF,
    REGISTRY,
    AnyConstraint,
    Scorers,
    catalogue,
    parse,
    warm_up,
)
from decoding.constraints.sentiment import (
    HashedSentiment,
    Sentiment,
    SentimentScorer,
    shipped_sentiment,
    shipped_sentiment_card,
)

__all__ = [
    "FAMILIES",
    "FAMILIES_OF",
    "REGISTRY",
    "AllOf",
    "AnyConstraint",
    "Avoid",
    "CapitalFrequency",
    "Check",
    "CollieC06a",
    "CollieC07",
    "Constraint",
    "ConstraintError",
    "HashedSentiment",
    "KeywordFrequency",
    "Keywords",
    "LengthRatio",
    "LetterFrequency",
    "NoComma",
    "Scorers",
    "Sentiment",
    "SentimentScorer",
    "Verdict",
    "WordCount",
    "catalogue",
    "parse",
    "shipped_sentiment",
    "shipped_sentiment_card",
    "warm_up",
]
