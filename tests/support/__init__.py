"""What several tests need: servers, clusters, recording stores, generated cases."""
