"""Parts of a server that answers searches: admission of requests, and their way to threads."""
