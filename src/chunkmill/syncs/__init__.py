"""Bring targets of earlier jobs up to date: only what has changed in the source is written again."""
