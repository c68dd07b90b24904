"""The Tensor class, by subject."""
