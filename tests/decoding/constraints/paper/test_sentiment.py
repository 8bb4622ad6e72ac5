"""The offline side of the sentiment predicate: the training script, and transformers classifiers as scorers."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest

from decoding.constraints import ConstraintError, Scorers, parse
from decoding.constraints.paper.sentiment import HashedSentiment, SentimentScorer, shipped_sentiment_card
from decoding.constraints.paper.sentiment_features import BUCKETS, feature_names, features
from gate_models.offline.scorers import train_sentiment
from gate_models.offline.scorers.transformers_sentiment import TransformersSentiment
from tests.decoding.constraints import reference

GOOD = "good happy lovely great fine sunny".split()
BAD = "bad sad ugly awful poor gloomy".split()


def write_split(path, rng, size):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for index in range(size):
            label = index % 2
            word, other = rng.choice(GOOD if label else BAD), rng.choice(["day", "dog", "meal", "song"])
            file.write(f"{label}\tthe {other} is {word} number {rng.randrange(20)}\n")


@pytest.fixture
def toy_data(tmp_path):
    rng = random.Random(3)
    for name, size in {"glue_train": 200, "sentences_train": 80, "glue_dev": 60, "sentences_test": 60}.items():
        write_split(tmp_path / f"{name}.tsv.gz", rng, size)
    with gzip.open(tmp_path / "lexicon.txt.gz", "wt", encoding="utf-8") as file:
        file.write("splendid\t3.0\t0.5\t[3]\nhorrid\t-3.0\t0.5\t[-3]\ngood\t2.0\t0.5\t[2]\nbad\t-2.0\t0.5\t[-2]\n")
    return tmp_path


@pytest.mark.slow
def test_training_is_deterministic_and_its_model_loads(toy_data):
    outputs = []
    for name in ("first", "second"):
        out = toy_data / name
        accuracies = train_sentiment.write(toy_data, toy_data / "lexicon.txt.gz", out)
        outputs.append([(out / file).read_bytes() for file in ("sentiment.npz", "sentiment.json")])
    assert outputs[0] == outputs[1]
    assert "test: accuracy" in accuracies
    card = json.loads(outputs[0][1])
    assert card["settings"]["seed"] == 0
    assert card["test"]["accuracy"] > 0.95
    with (toy_data / "first" / "sentiment.npz").open("rb") as file:
        model = HashedSentiment.load(file)
    good, bad, unseen_good, unseen_bad = model.probability_positive(
        ["a good song", "a bad song", "a splendid song", "a horrid song"]
    )
    assert good > 0.5 > bad
    assert unseen_good > unseen_bad  # known from the lexicon alone


def test_training_refuses_malformed_lines(toy_data):
    with gzip.open(toy_data / "glue_dev.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("1\tfine\n2\twhat\n")
    with pytest.raises(ValueError, match="line 2"):
        train_sentiment.train(toy_data, toy_data / "lexicon.txt.gz")


def test_models_of_other_features_or_shapes_are_refused(tmp_path):
    weights = np.zeros(BUCKETS, dtype=np.float16)
    train_sentiment.write_npz(tmp_path / "m.npz", {"weights": weights, "feature_version": np.asarray(99)})
    with (tmp_path / "m.npz").open("rb") as file, pytest.raises(ValueError, match="version 99"):
        HashedSentiment.load(file)
    with pytest.raises(ValueError, match="shape"):
        HashedSentiment(weights[:-1], 1.0, 0.0)
    with pytest.raises(ValueError, match="finite"):
        HashedSentiment(weights, float("nan"), 0.0)


def test_features_see_through_tokenisation_and_case():
    assert features("It doesn\u2019t work.") == features("it does n't  work .")
    assert "ngood" in feature_names("It is not very good.")
    assert "ngood" not in feature_names("It is not bad, but good.")
    assert features("") == features("\U0001f642") == []
    assert all(0 <= index < BUCKETS for index in features("Some Ünïcode text!"))


@pytest.mark.slow
@pytest.mark.skipif(not reference.SHARED.is_dir(), reason="the data folder ../shared/data is not here")
def test_the_shipped_model_can_be_trained_again():
    lexicon = reference.SHARED / "sentiment" / "vader_lexicon.txt.gz"
    _, card = train_sentiment.train(reference.SHARED / "sst2", lexicon)
    shipped = shipped_sentiment_card()
    assert card["data_sha256"] == shipped["data_sha256"]
    for split in ("dev", "test"):
        assert card[split]["accuracy"] == pytest.approx(shipped[split]["accuracy"], abs=0.005)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random two-class BERT of a few thousand parameters with a WordPiece tokenizer, as a local folder."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("classifier")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *[f"##{c}" for c in "abcdefghij"]]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        id2label={0: "NEGATIVE", 1: "POSITIVE"},
        label2id={"NEGATIVE": 0, "POSITIVE": 1},
    )
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_transformers_classifier_is_a_scorer(checkpoint):
    scorer = TransformersSentiment(checkpoint)
    assert isinstance(scorer, SentimentScorer)
    texts = ["a b c", "", "abc " * 100]
    together = scorer.probability_positive(texts)
    assert together.shape == (3,)
    assert ((together > 0) & (together < 1)).all()
    assert [float(scorer.probability_positive([text])[0]) for text in texts] == together.tolist()
    flipped = TransformersSentiment(checkpoint, positive_label=0).probability_positive(texts)
    assert flipped == pytest.approx(1 - together)
    constraint = parse({"type": "sentiment", "target": "positive"}, scorers=Scorers(sentiment=scorer))
    assert constraint.evaluate("a b c").satisfied is bool(together[0] >= 0.5)


def test_transformers_classifier_is_local_and_has_a_positive_label(checkpoint, tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        TransformersSentiment("distilbert-base-uncased")
    with pytest.raises(ValueError, match="none of the model's labels"):
        TransformersSentiment(checkpoint, positive_label=7)
    copy = tmp_path / "unnamed"
    copy.mkdir()
    for file in checkpoint.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    config |= {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    (copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match="pass positive_label"):
        TransformersSentiment(copy)


def test_a_spec_cannot_name_a_scorer():
    with pytest.raises(ConstraintError, match="no field"):
        parse({"type": "sentiment", "target": "positive", "scorer": "x"})
