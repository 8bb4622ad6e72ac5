"""Fluency by the shipped judge and by a causal model of transformers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from gate_models.offline.scorers.fluency import SHIPPED, CausalJudge, fluency, load_judge
from gate_models.offline.scorers.ngram import Score

TEXTS = ["a b c d", "b b", "d c b a d c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2 of one layer over five tokens, saved as any checkpoint is."""
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("judges") / "tiny-gpt2"
    words = Tokenizer(models.WordLevel({"<|endoftext|>": 0, "a": 1, "b": 2, "c": 3, "d": 4}, unk_token="<|endoftext|>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    ).save_pretrained(path)
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config(vocab_size=5, n_positions=8, n_embd=16, n_layer=1, n_head=2)).save_pretrained(path)
    return path


def test_a_causal_judge_scores_each_text_alone(folder: Path) -> None:
    judge = load_judge(folder)
    together = judge.score(TEXTS)
    assert [score.tokens for score in together] == [4, 2, 6]
    assert together == [judge.score([text])[0] for text in TEXTS]
    assert judge.name == "tiny-gpt2"


def test_a_causal_judge_is_the_chain_rule(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    nll = 0.0
    row = [0, 1, 2, 3, 4]
    for i in range(1, len(row)):
        logits = model(torch.tensor([row[:i]])).logits[0, -1]
        nll -= float(torch.log_softmax(logits.detach(), -1)[row[i]])
    assert CausalJudge(folder).score(["a b c d"])[0].nll == pytest.approx(nll, abs=1e-4)


def test_long_and_empty_texts(folder: Path) -> None:
    judge = CausalJudge(folder)
    assert judge.score(["a " * 50])[0].tokens == 7
    assert judge.score([""]) == [Score(0.0, 0)]
    assert fluency(judge, ["", " "])["perplexity"] is None


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is no folder"):
        load_judge(tmp_path / "gpt2")


def test_perplexity_is_over_all_tokens() -> None:
    judge = load_judge()
    texts = ["A dog runs on the beach.", "dog the on beach a runs"]
    scores = judge.score(texts)
    row = fluency(judge, texts)
    assert row["judge"] == SHIPPED
    assert row["nll_per_token"] == pytest.approx(sum(s.nll for s in scores) / sum(s.tokens for s in scores))
    assert row["perplexity"] == pytest.approx(math.exp(row["nll_per_token"]))
    assert fluency(judge, texts[:1])["perplexity"] < fluency(judge, texts[1:])["perplexity"]


def test_an_empty_text_is_not_fluent() -> None:
    judge = load_judge()
    assert fluency(judge, [""])["perplexity"] > fluency(judge, ["A dog runs on the beach."])["perplexity"]
