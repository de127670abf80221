"""The stages of a training chain: each reads a model directory and writes a model directory."""
