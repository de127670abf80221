"""Impact arrays of a shard: postings in runs, and word postings for BM25."""
