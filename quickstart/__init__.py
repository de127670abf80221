"""The default deployment on one machine: text that is on every machine, and a small trained checkpoint."""
