"""One whole training step in gates, from memory to memory: products and vector work in their two queues."""
