"""Keys <-> bytes. No JSON, no arrays."""
