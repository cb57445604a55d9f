"""The command line: ``chunkmill info | ls | convert | rechunk | refs | verify | check | demo``."""
