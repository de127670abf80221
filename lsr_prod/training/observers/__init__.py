"""Observers of a training run: reports, trackers, progress, throughput, sparsity, collapse, best weights."""
