"""Networks and data sets that users may train, capture and measure with: one definition each."""
