"""Convert and rechunk: plans, and the jobs that carry them out within a memory bound."""
