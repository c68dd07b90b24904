"""What runs programs: devices, their memory, and the cache of what was compiled for them."""
