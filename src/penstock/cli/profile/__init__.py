"""The verb `profile`."""
