"""Several training processes: process group, DDP and FSDP replicas, collective operations."""
