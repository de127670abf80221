"""One opened shard of an index version: its arrays, documents, words and filters."""
