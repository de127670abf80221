"""Changes to an encoder before it is trained: dropout, frozen weights, LoRA, gradient checkpointing, attention."""
