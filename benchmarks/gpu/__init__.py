"""What a GPU does with the product: parity, the encode pipeline, a training step."""
