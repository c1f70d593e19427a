"""The cost of moving data: between tiles, IPUs and replicas, from the host and from memory."""
