"""The training loop on Ray Train: batches, steps, optimizer, checkpoints and resumption."""
