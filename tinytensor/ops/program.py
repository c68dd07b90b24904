"""What codegen hands to the runtime: source text and how to call it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """One compiled unit: self-contained source with one entry.

    The entry takes `params` buffer addresses in order and, when `workspace_bytes` is above 0, the
    address of that much scratch memory, 64-byte aligned. For the CPU the source exports
    `struct PyMethodDef <name>_method`, a METH_FASTCALL function of those addresses as Python ints.
    """

    name: str
    source: str
    params: int
    workspace_bytes: int
    libraries: tuple[str, ...] = ()
