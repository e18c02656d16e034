"""The vector unit inside a device: descriptors in memory, a queue that runs them, the streams to and from memory."""
