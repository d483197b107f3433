"""Field paths, field types, and how fields are read."""
