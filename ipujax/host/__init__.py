"""What the host does beside the devices: queues, their elements, tables, threads and files."""
