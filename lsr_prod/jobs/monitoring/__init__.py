"""Subcommands that watch a deployment."""
