"""Retrieval training (``finetune``): trainer, step result, batch checks and momentum queue."""
