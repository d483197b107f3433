"""Profiles: what the fields of records hold."""
