"""What runs actors on a host: activations, turns, their gate, and the slots that hold them."""
