"""Check stored data: decode every chunk (`check`), compare two nodes (`verify`)."""
