"""Linear algebra beyond the products that Tensor has itself."""
