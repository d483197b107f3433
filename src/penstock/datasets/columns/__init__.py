"""Fields decoded once into mapped columns."""
