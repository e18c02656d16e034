"""The live view of a run whose `acf.RunLog` is written: in the terminal, or as a page that only this machine sees."""
