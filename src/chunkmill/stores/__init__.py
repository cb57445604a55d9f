"""Stores: mappings of keys to bytes."""
