"""The verb `convert`."""
