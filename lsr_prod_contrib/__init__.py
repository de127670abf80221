"""Extras of lsr_prod, which imports them on demand: a deployment can do without each of them."""
