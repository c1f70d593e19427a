"""What it takes to move data: between tiles, IPUs and replicas, from the host and from memory."""
