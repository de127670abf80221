"""Losses of the training, a module each: InfoNCE, distillation, the overlap term; and their level at chance."""
