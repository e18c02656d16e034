"""What a host does for a device: lay a program out in memory, write the registers, read the results back."""
