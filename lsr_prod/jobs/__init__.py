"""The jobs of lsr_prod: one module per job behind one command line."""
