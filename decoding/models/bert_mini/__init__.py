"""The architecture of the shipped model: a BERT encoder with a masked-token head."""
