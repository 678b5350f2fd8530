"""What commands print for people: tables and sentences, functions of the gateway's answers. Nothing here asks
anything."""
