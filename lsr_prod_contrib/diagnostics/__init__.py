"""Diagnostics of a model and of an encoded collection (esplade-pretraining, tables 3 and 6 to 9, and what users ask).

``vectors`` describes sparse vectors as they are indexed and the terms that texts do not contain, ``unexplained`` those
of them without evidence in the texts; ``logits`` needs torch and describes the head before pooling.
"""
