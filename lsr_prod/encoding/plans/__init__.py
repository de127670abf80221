"""Plans of an encode run: what is read, in which waves, under which digest; increments that follow a plan."""
