"""Observers of a training run: reports, throughput, sparsity and collapse."""
