"""What travels between the actors of the kit and those who use them."""
