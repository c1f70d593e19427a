"""The host's side of programs: queues, their elements, tables, threads and files."""
