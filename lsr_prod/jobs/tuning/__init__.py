"""Jobs that choose settings by measuring them: ``sweep``, ``tune``."""
