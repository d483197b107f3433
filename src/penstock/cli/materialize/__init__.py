"""The verb `materialize`."""
