"""The folder of `poptorch`."""
