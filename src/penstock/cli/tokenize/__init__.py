"""The verb `tokenize`."""
