"""The stages of a training chain: each takes a model directory and makes a model directory."""
