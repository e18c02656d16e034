"""The tests inside the simulator are run by it alone."""

collect_ignore = ["bus_bench.py"]
