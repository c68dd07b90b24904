"""The graph: its nodes, its three forms, and what is known of them."""
