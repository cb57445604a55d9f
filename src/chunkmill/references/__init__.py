"""Write reference sets: byte ranges over the chunks of any array or group, without copying data."""
