"""The endpoints: parse a request, make one call into the gateway or `govern`, encode the response."""
