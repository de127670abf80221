"""The tools of ``infra/supply``: licenses, audit and bills of materials of the locks."""
