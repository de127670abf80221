"""Diagnosis of models and indexes on the command line."""
