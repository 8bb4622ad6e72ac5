"""The card of the shipped model, made from evaluation results."""
