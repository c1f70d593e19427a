"""The virtual machine and its configuration: devices, options, flags, logs, attachments."""
