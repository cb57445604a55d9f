"""Draw arrays, chunk grids and reports as text and HTML."""
