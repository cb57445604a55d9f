"""The scripts run in the environments of other implementations."""

collect_ignore_glob = ["read_with_*.py", "images_of_*.py"]
