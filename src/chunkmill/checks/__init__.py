"""Prove what is stored: decode everything (`check`), compare two nodes (`verify`)."""
