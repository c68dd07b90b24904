"""Other packages' files and arrays as Tensors."""
