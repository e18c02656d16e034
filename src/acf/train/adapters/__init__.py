"""The controller inside other people's training loops; nothing of theirs is imported before it is asked for."""

from acf.train.adapters.hugging_face import hugging_face_callback
from acf.train.adapters.lightning import lightning_callback

__all__ = ["hugging_face_callback", "lightning_callback"]
