"""Language modeling and distillation on plain text: objectives, masks, trainer and validation."""
