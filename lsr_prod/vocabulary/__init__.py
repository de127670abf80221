"""What a model's output terms are: words and surfaces, transfer onto another vocabulary, expansion, casing, scale."""
