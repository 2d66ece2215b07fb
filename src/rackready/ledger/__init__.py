"""The record of every effect on the world, written before and after it; node states; the controller's lock."""
