"""Parts of sources by record number: chosen, by a rule, split, or of another class."""
