"""Control flow as nodes of a graph: branches, loops and scans whose bodies are traced once."""
