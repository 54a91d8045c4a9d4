"""Pictures and tables from measured results."""
