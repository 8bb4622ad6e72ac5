"""Random forests for gates, trained with scikit-learn and evaluated on flat arrays."""
