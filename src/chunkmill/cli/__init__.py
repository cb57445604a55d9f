"""The command line: ``chunkmill info | ls | attrs | convert | rechunk | refs | verify | check | demo``."""
