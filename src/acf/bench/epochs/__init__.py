"""Training over whole epochs, with captured steps simulated: does the gain of skipping zeros last?"""
