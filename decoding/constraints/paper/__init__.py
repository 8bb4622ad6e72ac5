"""The constraint families that the paper measures: keywords, length, sentiment, IFEval, COLLIE and Cognac."""
