"""Isolation of documents that crash or hang the model: an encoder in a child process, and a watchdog for calls."""
