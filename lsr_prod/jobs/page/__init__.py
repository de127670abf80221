"""The subcommand ``page``: one module per kind of report page, listed in ``command.KINDS``."""
