"""Terms: casing, words, surface forms, sub-tokens and text analysis, shared by models, indexes and queries."""
