"""What `acf bench` measures: kernels, accuracy, machines. Every figure is taken in the run that prints it."""
