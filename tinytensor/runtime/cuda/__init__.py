"""NVIDIA GPUs as a device: the driver, the compiler NVRTC, memory, and launches."""
