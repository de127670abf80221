"""Training of encoders: chains of stages, objectives, and one training loop on Ray Train."""
