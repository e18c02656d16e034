"""The parts of the fabric: the state of each, and the stages that both engines run on it.

States are NamedTuples of arrays, one entry per line, cluster or SCU, so that compiled loops can share them.
"""
