"""What reports look like: as text, a page, trace events and a file that is read again."""
