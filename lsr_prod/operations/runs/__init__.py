"""What train, encode and index runs have recorded, read from the store of their artifact, as plain values for pages."""
