"""tinytensor: a tiny lazy tensor framework with its own compiler."""

__version__ = "0.1.0"
