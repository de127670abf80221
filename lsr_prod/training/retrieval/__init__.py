"""Retrieval training (``finetune``): the trainer, the gradient of a step, and the momentum queue."""
