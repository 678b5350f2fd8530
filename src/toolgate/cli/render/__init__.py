"""What commands show to people, as functions of what the gateway answered. Nothing here asks or prints."""
