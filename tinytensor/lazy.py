"""Turns a module's name into the module at the moment it is first needed.

Every late import of the package goes through here: optional extras, and modules too slow to
load for those who never use them.
"""

import importlib
from types import ModuleType


def lazy_import(module: str, extra: str | None, who: str) -> ModuleType:
    """Import `module` for `who`, naming the `extra` that brings it if it is missing.

    >>> lazy_import("json", None, "doctest").dumps([1])
    '[1]'

    Raises: ImportError, also when the module is there but something it imports is not.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = f"tinytensor[{extra}]" if extra else "tinytensor"
        sentence = f"{who}: a module cannot be imported: {module} ({error})"
        raise ImportError(
            f"{sentence}; it must be installed: pip install {package}.", name=module
        ) from error
