"""Regularizers that keep vectors sparse, one per module, with their ramps and document frequencies."""
