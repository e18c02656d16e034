"""The mesh network: router with virtual channels and multicast, network, and the planner of its routing tables."""
