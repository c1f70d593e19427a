"""The folder of `libpvti`."""
