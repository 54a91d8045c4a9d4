"""How docstrings are read for the site: what Sphinx would make of roles is code, and examples are examples."""

import re
from typing import Any

from griffe import Extension, Object


class Plain(Extension):
    """Turns ``:func:`x``` into ``x`` as code, and the section ``Example`` into Google's ``Examples``."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Called for every module, class, function and attribute that is read."""
        if obj.docstring is not None:
            text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", obj.docstring.value)
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
