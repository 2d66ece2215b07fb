"""The record of every effect on the world, written around it; node states; the controller's lock and its children."""
