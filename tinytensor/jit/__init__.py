"""Turns functions on Tensors into programs that are called again without running the function."""
