"""The command line: ``chunkmill info | ls | attrs | jobs | convert | rechunk | refs | verify | check | demo``."""
