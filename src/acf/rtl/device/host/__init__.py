"""The host's side of the device: memory images of programs, and a device in simulation with memory at its bus."""
