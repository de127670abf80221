"""Effect of each method of the papers on stand-in models, written as one page of tables."""
