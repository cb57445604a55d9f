"""Import the package as users do: pytest, which imports one module first, gives its room the name of a function."""

import chunkmill  # noqa: F401
