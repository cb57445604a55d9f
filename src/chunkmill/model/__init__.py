"""Descriptions of arrays as plain values: numpy and the standard library only."""
