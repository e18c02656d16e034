"""`acf bench training`: dense and sparse runs on one machine, with time, energy, memory and quality of the same run."""
