"""Parts that all commands share: options, tables, log, the closing line and the exit code."""
