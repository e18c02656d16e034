"""How closely each threshold rule follows its target over a real training run (SparTANN, Fig. 8)."""
