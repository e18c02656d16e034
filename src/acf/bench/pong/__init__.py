"""`acf bench pong`: DQN on Atari Pong, dense against block-sparse, with frames per second, score, energy and U."""
