"""Jobs that apply a function of the user to stored arrays, block by block."""
