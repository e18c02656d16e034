"""Callbacks that run the controller inside other training frameworks, which are imported on first use."""

from acf.train.adapters.hugging_face import hugging_face_callback
from acf.train.adapters.lightning import lightning_callback

__all__ = ["hugging_face_callback", "lightning_callback"]
