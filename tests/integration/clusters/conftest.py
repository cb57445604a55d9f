"""Only a cluster of processes shows what is here: what crosses them, who holds a lock, what its scheduler knows, and its end."""
