"""An index as read-only tools of the Model Context Protocol: ``server`` speaks it, ``tools`` answers."""
