"""The ways to run a kernel: each turns an INDEXED kernel into the LINEAR form."""
