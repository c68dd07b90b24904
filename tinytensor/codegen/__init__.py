"""Turns a Kernel into a Program: plans, the LINEAR form, legalization, emission."""
