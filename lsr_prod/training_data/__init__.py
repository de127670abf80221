"""Training data: records become validated rows, rows become tokenized parts, parts become a training set."""
