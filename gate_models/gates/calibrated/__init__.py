"""Gates that are one number a family, measured on runs or taken from the paper."""
