"""Building blocks of all components: bit tricks, FIFOs, arbiters, ports, modules shared by many instances."""
