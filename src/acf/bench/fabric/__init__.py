"""What the fabric does with whole training steps, and what each of its parts is worth."""
