"""Arrays and groups as users hold them: open, create, list, read, write."""
