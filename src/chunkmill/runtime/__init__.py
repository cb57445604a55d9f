"""Run jobs on whatever scheduler dask is set to: stages of tasks, journal, preflight, progress, cluster locks."""
