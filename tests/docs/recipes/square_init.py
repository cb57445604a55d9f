"""Square arrays chunk by chunk: an example of a job."""
