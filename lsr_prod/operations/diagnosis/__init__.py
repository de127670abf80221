"""Diagnosis of a model on texts, and of a published index: everything that ``lsr-prod inspect terms`` prints."""
