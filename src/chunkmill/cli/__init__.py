"""The command line: ``chunkmill info | ls | attrs | jobs | convert | rechunk | pyramid | refs | verify | check``."""
