"""The folder that `install()` puts in the path of processes which this one starts."""
