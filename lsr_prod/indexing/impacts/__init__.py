"""Impact arrays of a shard: order of documents, postings in runs, compression, and word postings for BM25."""
