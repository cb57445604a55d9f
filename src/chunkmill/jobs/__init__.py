"""Jobs: what is stored of those that have not ended."""
