"""The commands ``inspect`` that write a report page: one module per kind of page."""
