"""Units that stand on their own, each with a model that says cycle by cycle what it does."""
