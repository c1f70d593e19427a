"""The folder of `horovod`."""
