"""Modules that hold the parameters and options of a function, and apply it."""
