"""Records of train, encode and index runs, read from the store of their artifact, as plain values for pages."""
