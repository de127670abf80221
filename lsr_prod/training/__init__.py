"""Training: what is minimised, on what batches, by one loop on Ray Train, in stages from model to model."""
