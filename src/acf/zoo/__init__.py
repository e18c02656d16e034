"""Networks and data sets to train, capture and measure with: one definition each."""
