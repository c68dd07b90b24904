"""Turns a TENSOR graph into an ordered list of kernels."""
