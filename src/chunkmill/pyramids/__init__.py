"""Multiscale pyramids: levels of lower resolution, made from an array."""
