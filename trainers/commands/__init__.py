"""The commands beside training: ``list``, ``partition`` and ``report``; each module has a ``main``."""
