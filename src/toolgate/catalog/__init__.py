"""Pure: what servers offer, checked and encoded for one caller: definitions, names on the doors, lists."""
