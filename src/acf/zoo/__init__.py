"""Networks and data sets to train, capture and measure with, one definition each.

`acf.zoo.networks.NETWORKS` and `acf.zoo.data.DATA_SETS` list them by name.
"""
