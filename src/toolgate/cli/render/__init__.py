"""What commands print for people: tables and sentences, as functions of the gateway's responses.

Nothing here sends a request.
"""
