"""An image of two channels."""

import numpy as np

VALUES = np.random.default_rng(4).integers(0, 4000, (2, 12, 20, 24)).astype("u2")
DIMS = ("c", "z", "y", "x")
